"""A cluster of broker processes on this machine."""
