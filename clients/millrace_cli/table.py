"""Rows as output: a table on a terminal, tab-separated lines in a pipe.

Owns the choice between the two. In a pipe there are no headings, no colours and no padding, and the
columns are always the same, so that `cut` and `awk` can process them. A terminal that is too narrow
for a table shows each row as lines of `column  value`. No text is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from millrace_cli.visible_text import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

TEXT_WIDTH_MIN = 16
"""Narrowest column in which a longer text is folded."""
_GAP = 3
"""Between two columns; two cells are at either side of the table."""


class Size(int):
    """A number of bytes: the number in a pipe; on a terminal with a unit, 1 kB is 1,000 bytes."""


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
    from rich.console import Console

    console = Console()
    cells = [[visible(_on_terminal(cell)) for cell in row] for row in rows]
    console.print(_rendered(columns, cells, visible(title), console.width))


def _rendered(
    columns: Sequence[str], cells: list[list[str]], title: str, width: int
) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.table import Table

    names = [column.rstrip("# ") for column in columns]
    widths = []
    for index, name in enumerate(names):
        longest = max((cell_len(row[index]) for row in cells), default=0)
        if columns[index][-1] != "#":
            longest = min(longest, TEXT_WIDTH_MIN)
        # Headings are folded between their words.
        widths.append(max(longest, *map(cell_len, name.split())))
    if sum(widths) + _GAP * len(widths) + 1 > width:
        return _rows_as_lines(names, cells, title)
    table = Table(title=escape(title) or None, title_justify="left", box=SIMPLE_HEAD)
    for column, name, narrowest in zip(columns, names, widths, strict=True):
        table.add_column(
            name,
            justify="right" if column[-1] == "#" else "left",
            overflow="fold",
            min_width=narrowest,
        )
    for row in cells:
        table.add_row(*map(escape, row))
    return table


def _rows_as_lines(names: list[str], cells: list[list[str]], title: str) -> RenderableType:
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    lines = Table(box=None, show_header=False)
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    if not cells:
        lines.add_row("none", "")
    for number, row in enumerate(cells):
        if number:
            lines.add_row("", "")
        for name, cell in zip(names, row, strict=True):
            lines.add_row(name, escape(cell))
    return Group(f"[italic]{escape(title)}[/]" if title else "", lines, "")


def size_or_none(size_bytes: int | None) -> Size | None:
    """The cell of a size; None where it is unknown."""
    return None if size_bytes is None or size_bytes < 0 else Size(size_bytes)


def _on_terminal(cell: object) -> str:
    if isinstance(cell, Size):
        from rich.filesize import decimal

        return decimal(cell)
    return _plain(cell)


def _plain(cell: object) -> str:
    return "-" if cell is None else str(cell).translate(_ESCAPES)


# The value of a setting may contain a tab, which must not look like a new column.
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
