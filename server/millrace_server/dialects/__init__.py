"""Dialects: bytes of a connection to service calls, and answers back to bytes."""
