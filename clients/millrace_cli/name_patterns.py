"""Names on the command line: a name that begins with `^` is a regular expression over known names.

Owns the meaning of such an argument. Asks no broker: the caller passes the names that exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import typer

from millrace_cli.exits import CommandError


def is_pattern(name: str) -> bool:
    """Whether the argument is a regular expression. No topic has such a name."""
    return name.startswith("^")


def check_patterns(names: Iterable[str]) -> None:
    """Raises `typer.BadParameter` for an argument that is not a regular expression."""
    for name in filter(is_pattern, names):
        try:
            re.compile(name)
        except re.error as error:
            raise typer.BadParameter(f"{name!r} is not a regular expression: {error}") from None


def expand(names: Sequence[str], known: Iterable[str], *, kind: str) -> tuple[str, ...]:
    """The names, each once, with the matching names in place of a pattern.

    Raises `CommandError` for a pattern that matches none of `known`.

    >>> expand(["views", "^c"], ["clicks", "costs", "views"], kind="topic")
    ('views', 'clicks', 'costs')
    """
    known = tuple(known)
    found: dict[str, None] = {}
    for name in names:
        matching = [name]
        if is_pattern(name):
            pattern = re.compile(name)
            matching = [each for each in known if pattern.search(each)]
            if not matching:
                raise CommandError(f"no {kind} matches {name!r}")
        found |= dict.fromkeys(matching)
    return tuple(found)
