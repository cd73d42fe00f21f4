"""What the console refuses to do, each with one sentence for the user."""

from __future__ import annotations


class InputError(ValueError):
    """What a user typed, or a page sent, cannot be used."""


class Refused(Exception):
    """A change that would do what the user cannot want."""
