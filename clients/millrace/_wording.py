"""Words of sentences for people."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun, for a sentence.

    >>> counted(1, "record"), counted(2, "batch", "batches")
    ('1 record', '2 batches')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
