"""The parts of the blocking clients: a loop in a thread, and calls into it."""
