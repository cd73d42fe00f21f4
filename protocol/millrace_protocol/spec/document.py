"""A document with generated parts between markers.

<!-- generated: fetch-request -->
(made by a generator of that name)
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping


class UnknownPart(ValueError):
    """A marker names a part that no generator makes."""


def regenerate(
    text: str, generators: Mapping[str, Callable[[], str]], *, marker: str = "generated"
) -> str:
    """The document with every part under this marker made anew. Raises `UnknownPart`."""

    def part(match: re.Match[str]) -> str:
        generator = generators.get(match["name"])
        if generator is None:
            raise UnknownPart(
                f"there is no generated part {match['name']!r}; there are {', '.join(generators)}"
            )
        return f"{match['open']}{generator()}\n{match['close']}"

    return _part(marker).sub(part, text)


def parts(text: str, *, marker: str = "generated") -> list[str]:
    """The names of the generated parts, in order."""
    return [match["name"] for match in _part(marker).finditer(text)]


def _part(marker: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<open><!-- {marker}: (?P<name>[^>]*?) -->\n)(?P<body>.*?)(?P<close><!-- end -->)",
        re.S,
    )
