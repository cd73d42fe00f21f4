"""Compaction: what is due, which records stay, and the segments that take their place."""
