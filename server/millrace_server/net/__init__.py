"""Connections: bytes in, whole requests out, answers back in order."""
