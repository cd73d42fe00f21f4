"""Rows as output: a table on a terminal, tab-separated lines in a pipe.

Owns the choice between the two. In a pipe there are no headings, no colours and no padding, and the
columns are always the same, so that `cut` and `awk` can process them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def show(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", kind: str = ""
) -> None:
    """Prints rows. In a pipe, `kind` begins each line, to tell several tables apart.

    A column whose name ends in `#` has numbers and is aligned to the right.
    """
    if not is_terminal():
        for row in rows:
            print("\t".join([*([kind] if kind else []), *map(_plain, row)]))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title) or None, title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column.rstrip("# "), justify="right" if column[-1] == "#" else "left")
    for row in rows:
        table.add_row(*(escape(_plain(cell)) for cell in row))
    Console().print(table)


def _plain(cell: object) -> str:
    return "-" if cell is None else str(cell).translate(_ESCAPES)


# The value of a setting may contain a tab, which must not look like a new column.
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
