"""Writes: rows to records, and the headers by which duplicates are found."""
