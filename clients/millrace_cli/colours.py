"""Colours for the lines of the dissector.

Owns the colour of each column. The columns are those of `millrace_protocol.dissect.render`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator

_COLUMNS = re.compile(
    r"(?P<position>[ ~]?[0-9a-f]{8} +\d+  )(?P<bytes>.{47}  )"
    r"(?P<name>[^ ]+)(?P<value>(?: = .*?)?)(?P<type>  (?!<-- ).*?)?(?P<fault>  <-- .*)?"
)
_DIM, _CYAN, _BOLD, _RED, _PLAIN = "\x1b[2m", "\x1b[36m", "\x1b[1m", "\x1b[1;31m", "\x1b[0m"
_COLOURS = {"position": _DIM, "bytes": _CYAN, "name": _BOLD, "type": _DIM, "fault": _RED}


def wants_colour() -> bool:
    """Whether stdout is a terminal and NO_COLOR is not set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def paint(lines: Iterable[str]) -> Iterator[str]:
    """The lines with ANSI colours."""
    for line in lines:
        match = _COLUMNS.fullmatch(line)
        if match is None:
            title, arrow, fault = line.partition("  <-- ")
            yield f"{_BOLD}{title}{_PLAIN}" + (f"{_RED}{arrow}{fault}{_PLAIN}" if arrow else "")
            continue
        yield "".join(
            f"{_COLOURS[column]}{text}{_PLAIN}" if column in _COLOURS else text
            for column, text in match.groupdict(default="").items()
            if text
        )
