"""The input formats of `millrace produce`: key, value and timestamp of a record.

    lines          the line is the value; with a separator, the key is before the first separator
    json           the line is a JSON object and the value; key and timestamp are fields
    json-envelope  the line is a JSON object with key, value, headers and timestamp (`envelope`)
    csv            the first row names the columns; the value is a JSON object of the row, all text
                   unless columns have types (`csv_types`)
    file           all bytes of the input are the value

Owns these formats and their errors. A key field with text is the key, unchanged; another value
is the key as JSON; null or a missing field means no key. A timestamp is in milliseconds since the
epoch, or ISO 8601, in UTC without an offset.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from millrace_cli.exits import InputError
from millrace_cli.formats.csv_rows import CsvRows
from millrace_cli.formats.csv_types import ColumnTypes
from millrace_cli.formats.envelope import read_envelope
from millrace_cli.formats.input_notes import InputNotes

if TYPE_CHECKING:
    from millrace.records import Headers

_BOM = b"\xef\xbb\xbf"
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_MAX = 10**11
"""Milliseconds before March 1973, and seconds up to the year 5138."""
YEAR_2100_MS = 4_102_444_800_000


class Format(StrEnum):
    """The format of the input."""

    LINES = "lines"
    JSON = "json"
    JSON_ENVELOPE = "json-envelope"
    CSV = "csv"
    FILE = "file"


@dataclass(slots=True)
class Columns:
    """Records by column, as `Producer.send_many` takes them; None for an absent column."""

    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] | None = None
    timestamps_ms: list[int] | None = None
    headers: list[Headers] | None = None


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
        empty_is_null: bool = False,
        types: ColumnTypes | None = None,
        notes: InputNotes | None = None,
    ) -> None:
        self._name = name
        self._format = format_
        self._separator = key_separator
        self._key_field = key_field
        self._timestamp_field = timestamp_field
        self._empty_is_null = empty_is_null
        self._types = types or ColumnTypes()
        self._notes = notes or InputNotes()
        self._csv = CsvRows(name, [field for field in (key_field, timestamp_field) if field])
        self._encode: Callable[[int, Sequence[str]], str] | None = None

    def read(self, lines: list[bytes], first_line: int) -> Columns:
        """The records in `lines`, the first of which is line `first_line` of the input.

        Raises `InputError` for a line that is not in the format, or lacks the timestamp.
        """
        match self._format:
            case Format.LINES:
                return self._plain(lines)
            case Format.FILE:
                return Columns(self._values(lines))
            case Format.JSON_ENVELOPE:
                return self._envelopes(lines, first_line)
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
            return Columns(self._values(lines))
        keys: list[bytes | None] = []
        values: list[bytes] = []
        for line in lines:
            key, separator, value = line.partition(self._separator)
            keys.append(key if separator else None)
            values.append(value if separator else line)
        return Columns(self._values(values), keys)

    def _values(self, values: list[bytes]) -> list[bytes | None]:
        return [value or None for value in values] if self._empty_is_null else [*values]

    def _envelopes(self, lines: list[bytes], first_line: int) -> Columns:
        columns = Columns(keys=[], timestamps_ms=[], headers=[])
        assert columns.keys is not None
        assert columns.timestamps_ms is not None
        assert columns.headers is not None
        now_ms = time.time_ns() // 1_000_000
        for number, line in self._json_lines(lines, first_line):
            try:
                found = read_envelope(line)
            except ValueError as error:
                raise self._error(number, str(error)) from None
            columns.values.append(found.value)
            columns.keys.append(found.key)
            columns.headers.append(found.headers)
            columns.timestamps_ms.append(
                now_ms if found.timestamp_ms is None else found.timestamp_ms
            )
        return columns

    def _json_lines(self, lines: list[bytes], first_line: int) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, without a byte order mark and a `\r` at the end."""
        for number, line in enumerate(lines, first_line):
            if number == 1:
                line = line.removeprefix(_BOM)
            if line.strip():
                yield number, line.removesuffix(b"\r")

    def _objects(
        self, lines: list[bytes], first_line: int
    ) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
        for number, line in self._json_lines(lines, first_line):
            try:
                row = json.loads(line, parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as error:
                raise self._error(number, f"is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise self._error(number, "is not a JSON object")
            yield number, line, row

    def _rows(
        self, lines: list[bytes], first_line: int
    ) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
        for number, row in self._csv.read(lines, first_line):
            header = self._csv.header
            named = dict(zip(header, row, strict=True))
            if self._types.are_plain:
                yield number, json.dumps(named, ensure_ascii=False).encode(), named
                continue
            if self._encode is None:
                if problem := self._types.require_columns(header):
                    raise self._error(1, problem)
                self._encode = self._types.encoder(header, self._notes, self._name)
            yield number, self._encode(number, row).encode(), named

    def _key(self, row: dict[str, Any], number: int) -> bytes | None:
        try:
            value = row.get(self._key_field)
            is_null = isinstance(value, str) and value in self._types.null_texts
            return None if is_null else _key(value)
        except (ValueError, RecursionError) as error:
            raise self._error(number, f"{self._key_field}: {error}") from None

    def _timestamp_ms(self, row: dict[str, Any], number: int) -> int:
        value = row.get(self._timestamp_field)
        try:
            found = timestamp_ms(value)
        except ValueError as error:
            raise self._error(number, f"{self._timestamp_field}: {error}") from None
        if self._timestamp_field and not _is_iso(value) and (matter := doubt_of(found)):
            self._notes.add(f"{self._timestamp_field} {matter}", self._name, number, str(value))
        return found

    def _error(self, line: int, problem: str) -> InputError:
        return InputError(f"{self._name} line {line} {problem}")


def _key(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class BeforeEpoch(ValueError):
    """A time before 1970."""


def timestamp_ms(value: Any) -> int:
    """Milliseconds since the epoch, from a number of them or ISO 8601.

    Raises `BeforeEpoch`, and `ValueError` for what is no time.

    >>> timestamp_ms("2013-01-01T10:00:00Z"), timestamp_ms("2013-01-01 10:00"), timestamp_ms(5)
    (1357034400000, 1357034400000, 5)
    """
    found = _read_ms(value)
    if found is not None and 0 <= found < 1 << 62:
        return found
    if found is not None and found < 0:
        raise BeforeEpoch(f"{value!r} is before 1970, and no record has such a timestamp")
    raise ValueError(f"{value!r} is neither milliseconds since the epoch nor ISO 8601")


def doubt_of(timestamp_ms: int) -> str | None:
    """What is odd about a number that was given as milliseconds; None for nothing."""
    if 0 < timestamp_ms < SECONDS_MAX:
        return "is in 1970 to 1973 if in milliseconds; seconds and dates are other numbers"
    if timestamp_ms > YEAR_2100_MS:
        return "is after the year 2100 if in milliseconds; microseconds are other numbers"
    return None


def _read_ms(value: Any) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if abs(value) < 1 << 62 else None
    if not isinstance(value, str):
        return None
    if _WHOLE.fullmatch(value):
        return int(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round((moment - _EPOCH).total_seconds() * 1000)


def _is_iso(value: Any) -> bool:
    return isinstance(value, str) and _WHOLE.fullmatch(value) is None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON; null, or text, may stand for it")
