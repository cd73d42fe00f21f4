"""What users give as keys, values and headers, made into what can be encoded.

Owns the check of types and the columns of one `send_many`. A wrong record is refused before it is
in a batch with others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import repeat
from operator import index
from typing import Any, SupportsIndex

from millrace.config import ProducerConfig
from millrace.errors import MessageTooLarge
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import FRAME_BYTES_MAX
from millrace_protocol.records import HEADER_SIZE, RECORD_OVERHEAD_BYTES, Headers, record_size_max

_PLAIN = {bytes, type(None)}
_TIMESTAMP_MAX_MS = 1 << 62
_TOPIC_CHARACTERS_MAX = 249


@dataclass(frozen=True, slots=True)
class Columns:
    """Records by column, each as long as `values`, or None where no record has any.

    `timestamps_ms` is one for all, or one for each. `record_bytes` is an upper bound of what each
    record takes where it is the same for all, as far as that was looked for; `header_bytes` of
    what headers add to each, likewise.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    timestamps_ms: Sequence[int] | int
    record_bytes: int | None = None
    header_bytes: int | None = None

    @property
    def value_bytes(self) -> int | None:
        """The length of every value, where that was looked for and is the same for all."""
        if self.record_bytes is None:
            return None
        return self.record_bytes - RECORD_OVERHEAD_BYTES - (self.header_bytes or 0)

    def size_bytes(self, start: int, end: int) -> int:
        """An upper bound of what the records in `[start, end)` take."""
        values, keys = self.values[start:end], self.keys
        if self.headers is not None and self.header_bytes is None:
            some_keys = repeat(None) if keys is None else keys[start:end]
            return sum(map(record_size_max, some_keys, values, self.headers[start:end]))
        size = (RECORD_OVERHEAD_BYTES + (self.header_bytes or 0)) * (end - start)
        size += _bytes_in(values)
        return size if keys is None else size + _bytes_in(keys[start:end])

    def fitting(self, start: int, count: int, room_bytes: int) -> tuple[int, int]:
        """How many records from `start` on, at most `count`, and their size, fit into the room.

        Not always as many as would fit. One is the least, whether it fits or not.
        """
        if self.record_bytes is not None:
            count = max(1, min(count, room_bytes // self.record_bytes))
            return count, count * self.record_bytes
        size = self.size_bytes(start, start + count)
        while size > room_bytes and count > 1:
            count = max(1, min(count // 2, count * room_bytes // size))
            size = self.size_bytes(start, start + count)
        return count, size

    def pick(self, rows: Sequence[int]) -> Columns:
        """The rows given, in that order."""
        keys, headers, timestamps_ms = self.keys, self.headers, self.timestamps_ms
        return Columns(
            [self.values[row] for row in rows],
            None if keys is None else [keys[row] for row in rows],
            None if headers is None else [headers[row] for row in rows],
            timestamps_ms
            if isinstance(timestamps_ms, int)
            else [timestamps_ms[row] for row in rows],
            self.record_bytes,
            self.header_bytes,
        )

    def part(self, start: int, end: int) -> Columns:
        """A copy of the rows in `[start, end)`."""
        keys, headers, timestamps_ms = self.keys, self.headers, self.timestamps_ms
        return Columns(
            self.values[start:end],
            None if keys is None else keys[start:end],
            None if headers is None else headers[start:end],
            timestamps_ms if isinstance(timestamps_ms, int) else timestamps_ms[start:end],
            self.record_bytes,
            self.header_bytes,
        )


def common_record_bytes(values: Sequence[bytes | None], header_bytes: int) -> int | None:
    """What each record of these values and headers takes, an upper bound; None if they differ."""
    try:
        (length,) = {*map(len, values)}  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return RECORD_OVERHEAD_BYTES + length + header_bytes


def _bytes_in(column: Sequence[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return sum(len(item) for item in column if item is not None)


def as_bytes(name: str, item: object) -> bytes | None:
    """A key or value as it is sent; a copy of what could change. Raises `TypeError`."""
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    raise TypeError(
        f"{name}: must be bytes or None, not {type(item).__name__}; give the producer a "
        f"{name}_serializer, or encode it"
    )


def bytes_column(
    name: str, items: Sequence[Any], serializer: Callable[[Any], bytes] | None
) -> list[bytes | None]:
    """A column of keys or values as it is sent. Raises `TypeError`."""
    if serializer is not None:
        items = [None if item is None else serializer(item) for item in items]
    column = items if isinstance(items, list) else list(items)
    if {*map(type, column)} <= _PLAIN:
        return column
    return [as_bytes(name, item) for item in column]


def headers_column(items: Sequence[Headers]) -> tuple[list[Headers], int | None]:
    """A column of headers that can be encoded, and what they add to each record if all are equal.

    Equal ones, as those that say where records come from, are checked and measured once. Raises
    `TypeError` and `ValueError`.
    """
    column = items if isinstance(items, list) else list(items)
    if not column or column[0] != column[-1] or column.count(column[0]) < len(column):
        return [checked_headers(item) for item in column], None
    headers = checked_headers(column[0])
    added_bytes = record_size_max(None, None, headers) - record_size_max(None, None)
    return [headers] * len(column), added_bytes


def checked_headers(headers: Headers) -> Headers:
    """Headers that can be encoded, as a value that does not change.

    Raises `TypeError`, and `ValueError` for a name that is no UTF-8.
    """
    if isinstance(headers, Mapping):
        raise TypeError("headers: pairs of str and bytes or None, not a mapping; pass its items()")
    checked = tuple((name, value) for name, value in headers)
    for name, value in checked:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError(f"headers: pairs of str and bytes or None, not {name!r}: {value!r}")
        _check_utf8("headers", name)
    return checked


def checked_timestamp_ms(name: str, timestamp_ms: object) -> int:
    """A timestamp that can be encoded. Raises `TypeError` and `ValueError`."""
    # Nearly all are an int, and the instance check of a protocol is slow.
    checked = timestamp_ms if type(timestamp_ms) is int else _as_index(name, timestamp_ms)
    if not 0 <= checked < _TIMESTAMP_MAX_MS:
        raise ValueError(f"{name}: {checked} is not in [0, 2**62)")
    return checked


def _as_index(name: str, timestamp_ms: object) -> int:
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, SupportsIndex):
        kind = type(timestamp_ms).__name__
        raise TypeError(f"{name}: whole milliseconds since the epoch, not {kind}; int() makes one")
    return index(timestamp_ms)


def checked_timestamps_ms(timestamps_ms: Sequence[int] | int) -> Sequence[int] | int:
    """One timestamp, or a column of them. Raises `TypeError` and `ValueError`."""
    if not isinstance(timestamps_ms, Sized):
        return checked_timestamp_ms("timestamps_ms", timestamps_ms)
    column = timestamps_ms if isinstance(timestamps_ms, list) else list(timestamps_ms)
    # The column at once, as a rule; the item that is wrong is looked for only when there is one.
    if {*map(type, column)} == {int} and min(column) >= 0 and max(column) < _TIMESTAMP_MAX_MS:
        return column
    return [checked_timestamp_ms("timestamps_ms", item) for item in column]


def checked_partition(partition: object) -> int:
    """A partition number, there or not. Raises `TypeError`."""
    if isinstance(partition, bool) or not isinstance(partition, SupportsIndex):
        raise TypeError(f"partition: a number from 0, or None, not {partition!r}")
    return index(partition)


def check_topic(topic: object) -> None:
    """Whether a topic can be asked for at all. Raises `TypeError` and `ValueError`.

    What cannot be encoded would otherwise fail in the task that sends all records.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic: a str, not {type(topic).__name__}")
    _check_utf8("topic", topic)
    if len(topic) > _TOPIC_CHARACTERS_MAX:
        raise ValueError(f"topic: {len(topic)} characters; at most {_TOPIC_CHARACTERS_MAX}")


def _check_utf8(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {text!r} has no UTF-8 form") from None


def record_too_large(size: int, config: ProducerConfig) -> MessageTooLarge:
    """The error for a record of `size` bytes; it names every setting that such a record needs."""
    limit = config.record_bytes_max
    given = config.max_request_bytes
    bound = "is the default bound" if given is None else f"is what max_request_bytes={given} leaves"
    wanted = size + HEADER_SIZE
    needed = [
        f"max_request_bytes={wanted} and buffer_bytes={2 * wanted} of the producer",
        f"max.message.bytes={wanted} of the topic",
    ]
    if wanted > FRAME_BYTES_MAX:
        needed.append(f"frame_bytes_max={wanted + HEADER_SIZE} in [limits] of the broker")
        needed.append(f"fetch_max_bytes={wanted} of each consumer, and buffer_bytes of as much")
    return MessageTooLarge(
        f"a record of up to {size} bytes with its frame, and {limit} {bound}: send less, or set at "
        f"least {'; '.join(needed)}",
        code=ErrorCode.MESSAGE_TOO_LARGE,
    )
