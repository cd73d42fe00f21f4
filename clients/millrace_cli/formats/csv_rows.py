"""The rows of a CSV: header and fields, with the number of the line for every error.

Owns what is no CSV. `csv_types` gives the fields their types.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from millrace_cli.exits import InputError


class CsvRows:
    """Reads one input, some whole rows at a time. `name` is the input's name, for errors."""

    def __init__(self, name: str, required: Sequence[str] = ()) -> None:
        """`required` are columns that the header must have."""
        self._name = name
        self._required = required
        self.header: list[str] = []
        """The names of the columns; empty until the first row was read."""

    def read(self, lines: list[bytes], first_line: int) -> Iterator[tuple[int, list[str]]]:
        """The rows in `lines`, each with the number of the line where it ends.

        The first of `lines` is line `first_line` of the input. Empty lines are skipped. Raises
        `InputError` for a row that has more or fewer fields than the header, for a header with a
        name that is empty or there twice, and for what is not CSV in UTF-8.
        """
        try:
            text = b"\n".join(lines).decode("utf-8-sig" if first_line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise self._not_utf8(lines, first_line, error) from None
        # Line ends are not converted, because a quoted field may contain them.
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            for row in reader:
                number = first_line + reader.line_num - 1
                if not row:
                    continue
                if not self.header:
                    self._take_header(row, number)
                    continue
                if len(row) != len(self.header):
                    fields = f"{len(row)} field{'' if len(row) == 1 else 's'}"
                    raise self.error(number, f"has {fields}, and the header {len(self.header)}")
                yield number, row
        except csv.Error as error:
            raise self.error(first_line + reader.line_num - 1, f"is not CSV: {error}") from None

    def error(self, line: int, problem: str) -> InputError:
        """The error of a line."""
        return InputError(f"{self._name} line {line} {problem}")

    def _take_header(self, row: list[str], number: int) -> None:
        for index, name in enumerate(row, 1):
            if not name.strip():
                raise self.error(number, f"names the columns, and column {index} has no name")
            if name in row[: index - 1]:
                raise self.error(number, f"names two columns {name!r}; rename one of them")
        for wanted in self._required:
            if wanted not in row:
                raise self.error(number, f"has no column {wanted!r}; it has {', '.join(row)}")
        self.header = row

    def _not_utf8(
        self, lines: list[bytes], first_line: int, error: UnicodeDecodeError
    ) -> InputError:
        number = first_line + b"\n".join(lines).count(b"\n", 0, error.start)
        return self.error(number, f"is not UTF-8: {error.reason}")
