"""The input formats of `millrace produce`: key, value and timestamp of a record.

    lines   the line is the value; with a separator, the key is before the first separator
    json    the line is a JSON object and the value, unchanged; key and timestamp are fields
    csv     the first row names the columns; the value is a JSON object of the row, all text

Owns the three formats and their errors. A key field with text is the key, unchanged; another value
is the key as JSON; null or a missing field means no key. A timestamp is in milliseconds since the
epoch, or ISO 8601, in UTC without an offset.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from millrace_cli.exits import InputError


class Format(StrEnum):
    """The format of the input."""

    LINES = "lines"
    JSON = "json"
    CSV = "csv"


@dataclass(slots=True)
class Columns:
    """Records by column, as `Producer.send_many` takes them; None for an absent column."""

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] | None = None
    timestamps_ms: list[int] | None = None


class Reader:
    """Converts the lines of one input to columns. `name` is the input's name, for errors."""

    def __init__(
        self,
        name: str,
        format_: Format,
        *,
        key_separator: bytes = b"",
        key_field: str = "",
        timestamp_field: str = "",
    ) -> None:
        self._name = name
        self._format = format_
        self._separator = key_separator
        self._key_field = key_field
        self._timestamp_field = timestamp_field
        self._header: list[str] = []

    def read(self, lines: list[bytes], first_line: int) -> Columns:
        """The records in `lines`, the first of which is line `first_line` of the input.

        Raises `InputError` for a line that is not in the format, or lacks the timestamp.
        """
        if self._format is Format.LINES:
            return self._plain(lines)
        columns = Columns()
        keys: list[bytes | None] = []
        timestamps_ms: list[int] = []
        rows = self._objects if self._format is Format.JSON else self._rows
        for number, value, row in rows(lines, first_line):
            columns.values.append(value)
            if self._key_field:
                keys.append(self._key(row, number))
            if self._timestamp_field:
                timestamps_ms.append(self._timestamp_ms(row, number))
        if self._key_field:
            columns.keys = keys
        if self._timestamp_field:
            columns.timestamps_ms = timestamps_ms
        return columns

    def _plain(self, lines: list[bytes]) -> Columns:
        if not self._separator:
            return Columns(lines)
        keys: list[bytes | None] = []
        values: list[bytes] = []
        for line in lines:
            key, separator, value = line.partition(self._separator)
            keys.append(key if separator else None)
            values.append(value if separator else line)
        return Columns(values, keys)

    def _objects(
        self, lines: list[bytes], first_line: int
    ) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
        for number, line in enumerate(lines, first_line):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise self._error(number, f"is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise self._error(number, "is not a JSON object")
            yield number, line, row

    def _rows(
        self, lines: list[bytes], first_line: int
    ) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
        try:
            text = b"\n".join(lines).decode("utf-8-sig" if first_line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise self._error(first_line, f"or a line soon after is not UTF-8: {error}") from None
        # Line ends are not converted, because a quoted field may contain them.
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            for row in reader:
                number = first_line + reader.line_num - 1
                if not row:
                    continue
                if not self._header:
                    self._take_header(row, number)
                    continue
                if len(row) != len(self._header):
                    raise self._error(
                        number, f"has {len(row)} fields, and the header {len(self._header)}"
                    )
                named = dict(zip(self._header, row, strict=True))
                yield number, json.dumps(named, ensure_ascii=False).encode(), named
        except csv.Error as error:
            raise self._error(first_line + reader.line_num - 1, f"is not CSV: {error}") from None

    def _take_header(self, row: list[str], number: int) -> None:
        for wanted in (self._key_field, self._timestamp_field):
            if wanted and wanted not in row:
                raise self._error(number, f"has no column {wanted!r}; it has {', '.join(row)}")
        self._header = row

    def _key(self, row: dict[str, Any], number: int) -> bytes | None:
        try:
            return _key(row.get(self._key_field))
        except (ValueError, RecursionError) as error:
            raise self._error(number, f"{self._key_field}: {error}") from None

    def _timestamp_ms(self, row: dict[str, Any], number: int) -> int:
        value = row.get(self._timestamp_field)
        try:
            return timestamp_ms(value)
        except ValueError as error:
            raise self._error(number, f"{self._timestamp_field}: {error}") from None

    def _error(self, line: int, problem: str) -> InputError:
        return InputError(f"{self._name} line {line} {problem}")


def _key(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def timestamp_ms(value: Any) -> int:
    """Milliseconds since the epoch, from a number of them or ISO 8601. Raises `ValueError`.

    >>> timestamp_ms("2013-01-01T10:00:00Z"), timestamp_ms("2013-01-01 10:00"), timestamp_ms(5)
    (1357034400000, 1357034400000, 5)
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 62:
        return int(value)
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and len(value) < 19:
            return int(value)
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            if time.tzinfo is None:
                time = time.replace(tzinfo=UTC)
            return round(time.timestamp() * 1000)
    raise ValueError(f"{value!r} is neither milliseconds since the epoch nor ISO 8601")
