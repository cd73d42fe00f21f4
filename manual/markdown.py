"""Markdown, from texts of the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown without `|`."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def plain(text: str) -> str:
    """Text in one line that Markdown shows as it is, except for the code in backticks.

    >>> plain("set MILLRACE_* or `[a | b]`")
    'set MILLRACE\\\\_\\\\* or `[a \\\\| b]`'
    """
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        part.replace("|", r"\|") if part[:1] == "`" else re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", part)
        for part in parts
    )


def code(text: str) -> str:
    r"""Text as code in a line or in a cell.

    >>> code("parquet|orc")
    '`parquet\\|orc`'
    """
    return f"`{text.replace('|', chr(92) + '|')}`"
