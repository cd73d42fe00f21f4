"""Batch reads: planning on the driver, ranges and Arrow batches on the executors."""
