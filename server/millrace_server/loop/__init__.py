"""What every part shares of the event loop: fair scheduling, alarms, deadlines."""
