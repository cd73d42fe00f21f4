"""Streaming reads: micro-batches, rate limits, checkpoint offsets and group progress."""
