"""The records of a batch, number by number: lengths, deltas, key, value and headers.

Owns the reading of varints with their positions, which the decoder that clients use does not
keep. Source: wire_spec.md W-5.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millrace_protocol.dissect.span import Buffer, Limits, Span, ValueDissector
from millrace_protocol.records import BatchHeader

_VARINT_SIZE_MAX = 10


class _BadRecord(Exception):
    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def dissect_records(
    data: Buffer,
    start: int,
    end: int,
    *,
    header: BatchHeader,
    prefix: str,
    limits: Limits,
    values: ValueDissector | None = None,
) -> Iterator[Span]:
    """One span per record in `data[start:end]`, which is not compressed."""
    view = memoryview(data)
    position = start
    for index in range(header.record_count):
        if index == limits.records_max:
            left = header.record_count - index
            name = f"{prefix}.records[{index}...]"
            yield Span(position, end, name, "records", note=f"{left} more not shown")
            return
        name = f"{prefix}.records[{index}]"
        record = _Record(view, position, end, name, limits=limits, values=values)
        span = record.dissect(header)
        yield span
        if span.fault:
            return
        position = span.end
    if position < end:
        fault = f"{end - position} bytes follow the last of {header.record_count} records"
        yield Span(position, end, f"{prefix}.records", "?", fault=fault)


class _Record:
    """A cursor over one record; spans gather in `_spans` as they are read."""

    def __init__(
        self,
        view: memoryview,
        start: int,
        limit: int,
        name: str,
        *,
        limits: Limits,
        values: ValueDissector | None,
    ) -> None:
        self._view = view
        self._start = start
        self._position = start
        self._limit = limit
        self._name = name
        self._limits = limits
        self._values = values
        self._spans: list[Span] = []

    def dissect(self, header: BatchHeader) -> Span:
        """The record, or as much of it as there is and then a fault."""
        note = ""
        try:
            note = self._read(header)
        except _BadRecord as bad:
            last = Span(bad.position, self._limit, self._name, "?", fault=bad.reason)
            children = (*self._spans, last)
            return Span(
                self._start, self._limit, self._name, "record", fault=bad.reason, children=children
            )
        return Span(
            self._start, self._position, self._name, "record", note=note, children=(*self._spans,)
        )

    def _read(self, header: BatchHeader) -> str:
        size = self._varint("length")
        if not 0 <= size <= self._limit - self._position:
            raise _BadRecord(
                f"a record of {size} bytes with {self._limit - self._position} left", self._start
            )
        self._limit = self._position + size
        self._byte("attributes")
        timestamp_delta = self._varint("timestamp_delta")
        offset_delta = self._varint("offset_delta")
        self._bytes("key", nullable=True)
        self._value()
        count = self._varint("headers.count")
        if not 0 <= count <= self._limit - self._position:
            raise _BadRecord(f"{count} headers cannot be in the bytes left", self._position)
        for index in range(count):
            self._bytes(f"headers[{index}].key", nullable=False)
            self._bytes(f"headers[{index}].value", nullable=True)
        if self._position != self._limit:
            raise _BadRecord(
                f"{self._limit - self._position} bytes follow the record's headers", self._position
            )
        timestamp_ms = header.base_timestamp + timestamp_delta
        if header.is_log_append_time:
            timestamp_ms = header.max_timestamp
        return f"offset {header.base_offset + offset_delta}, timestamp {timestamp_ms}"

    def _add(self, start: int, name: str, type_: str, value: object) -> None:
        self._spans.append(Span(start, self._position, f"{self._name}.{name}", type_, value))

    def _byte(self, name: str) -> None:
        start = self._position
        if start == self._limit:
            raise _BadRecord(f"{name}: the record ends here", start)
        self._position += 1
        self._add(start, name, "int8", self._view[start])

    def _varint(self, name: str) -> int:
        start = self._position
        value = self._read_varint(name)
        self._add(start, name, "varint", value)
        return value

    def _read_varint(self, name: str) -> int:
        start = self._position
        raw = shift = 0
        while True:
            if self._position == self._limit:
                raise _BadRecord(f"{name}: the bytes end inside a varint", start)
            if self._position - start == _VARINT_SIZE_MAX:
                raise _BadRecord(f"{name}: a varint of more than 10 bytes", start)
            byte = self._view[self._position]
            self._position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7

    def _value(self) -> None:
        self._bytes("value", nullable=True)
        span = self._spans[-1]
        if self._values is None or not isinstance(span.value, memoryview):
            return
        start = span.end - len(span.value)
        size = Span(span.start, start, f"{span.name}.size", "varint", len(span.value))
        value = self._values(self._view, start, span.end, name=span.name, limits=self._limits)
        self._spans[-1] = replace(span, value=None, note=value.type, children=(size, value))

    def _bytes(self, name: str, *, nullable: bool) -> None:
        start = self._position
        size = self._read_varint(name)
        if size == -1 and nullable:
            self._add(start, name, "varint + bytes", None)
            return
        if not 0 <= size <= self._limit - self._position:
            raise _BadRecord(
                f"{name}: {size} bytes with {self._limit - self._position} left", start
            )
        value = self._view[self._position : self._position + size]
        self._position += size
        self._add(start, name, "varint + bytes", value)
