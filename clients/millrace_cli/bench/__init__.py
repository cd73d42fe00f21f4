"""What `millrace bench` does: loads for a topic, and what is measured of them."""

STAMP_BYTES = 24
"""The beginning of the value of a latency run: the run, and the number of the record."""
