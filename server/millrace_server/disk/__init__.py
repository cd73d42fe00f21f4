"""The `Disk` seam on the operating system, and what must run beside the event loop."""
