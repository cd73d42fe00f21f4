"""Rows as output: a table on a terminal, tab-separated lines in a pipe.

Owns the choice between the two. In a pipe there are no headings, no colours and no padding, and the
columns are always the same, so that `cut` and `awk` can process them. On a terminal that is too
narrow for a table, the first columns become lines of their own between its rows. One that is too
narrow for that, too, shows each row as lines of `column  value`. No text is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from millrace_cli.visible_text import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

NAME_WIDTH_MIN = 48
"""Narrowest first column in which a longer name is folded."""
TEXT_WIDTH_MIN = 24
"""Narrowest other column in which a longer text is folded."""
_GAP = 2
"""Between two columns."""
_LEFT_OUT_MAX = 3
"""Most columns whose cells stand in a line of their own."""


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
    console.print(rendered(columns, rows, title=title, width=console.width))


def rendered(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str, width: int
) -> RenderableType:
    """The rows for a terminal of this width, with nothing that could control it."""
    cells = [[visible(_on_terminal(cell)) for cell in row] for row in rows]
    return layout(columns, cells, visible(title), width)


def layout(
    columns: Sequence[str], cells: list[list[str]], title: str, width: int
) -> RenderableType:
    """The rows for a terminal of this width: as a table, below lines, or as lines."""
    from rich.console import Group
    from rich.text import Text

    heading = [Text(title, "italic")] if title else []
    left_out_max = min(_LEFT_OUT_MAX, len(columns) - 2) if len(cells) > 1 else 0
    for first in range(left_out_max + 1):
        rest = [row[first:] for row in cells]
        widths = _widths(columns[first:], rest, width - _margin(first), has_name=first == 0)
        if widths is not None:
            return Group(*heading, *_table(columns, widths, cells, first), "")
    return Group(*heading, _rows_as_lines(columns, cells), "")


def _widths(
    columns: Sequence[str], cells: list[list[str]], width: int, *, has_name: bool
) -> list[int] | None:
    """The width of each column; None if the columns do not fit beside each other."""
    from rich.cells import cell_len

    narrowest, widest = [], []
    for index, column in enumerate(columns):
        name = _name(column)
        longest = max((cell_len(row[index]) for row in cells), default=0)
        folded_from = TEXT_WIDTH_MIN if index or not has_name else NAME_WIDTH_MIN
        least = longest if _is_number(column) else min(longest, folded_from)
        # Headings are folded between their words.
        narrowest.append(max(least, *map(cell_len, name.split())))
        widest.append(max(longest, cell_len(name)))
    left = width - sum(narrowest) - _GAP * (len(columns) - 1)
    if left < 0:
        return None
    widths = []
    for least, most in zip(narrowest, widest, strict=True):
        widths.append(min(most, least + left))
        left -= widths[-1] - least
    return widths


def _table(
    columns: Sequence[str], widths: list[int], cells: list[list[str]], first: int
) -> Iterator[RenderableType]:
    """Headings, a line, and the rows; the cells before `first` are in lines above their rows."""
    from rich.padding import Padding
    from rich.text import Text

    margin = (0, 0, 0, _margin(first))
    names = [_name(column) for column in columns]
    if first:
        yield Text(" " + ", ".join(names[:first]), "bold")
    yield Padding(_grid(columns[first:], widths, [names[first:]], "bold"), margin)
    yield Padding(Text("─" * (sum(widths) + _GAP * (len(widths) - 1))), margin)
    for line, rows in groupby(cells, key=lambda row: row[:first]):
        if line:
            yield Text(" " + "  ".join(line))
        yield Padding(_grid(columns[first:], widths, [row[first:] for row in rows], ""), margin)


def _grid(
    columns: Sequence[str], widths: list[int], rows: list[list[str]], style: str
) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, show_header=False, padding=0)
    for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
        if index:
            # Padding would be at the edges, too, in some versions of rich.
            grid.add_column(width=_GAP)
        justify: Literal["left", "right"] = "right" if _is_number(column) else "left"
        vertical: Literal["top", "bottom"] = "bottom" if style else "top"
        grid.add_column(width=width, justify=justify, overflow="fold", vertical=vertical)
    for row in rows:
        cells = [Text(cell, style) for cell in row]
        grid.add_row(*[part for cell in cells for part in ("", cell)][1:])
    return grid


def _rows_as_lines(columns: Sequence[str], cells: list[list[str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    lines = Table(box=None, show_header=False)
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    if not cells:
        lines.add_row("none", "")
    for number, row in enumerate(cells):
        if number:
            lines.add_row("", "")
        for column, cell in zip(columns, row, strict=True):
            lines.add_row(_name(column), Text(cell))
    return lines


def _margin(first: int) -> int:
    """Cells left of a table; its rows are indented below the lines of the columns left out."""
    return 3 if first else 1


def _name(column: str) -> str:
    return column.rstrip("# ")


def _is_number(column: str) -> bool:
    return column[-1] == "#"


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
