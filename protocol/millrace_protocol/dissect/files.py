"""The files of a partition on disk: segment, offset index, time index.

Owns their layouts as a reader sees them (wire_spec.md W-9) and how a file is known by its name.
Takes bytes, best a `memoryview` of a mapped file, and reads nothing itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import crc32c

from millrace_protocol.dissect.batches import dissect_batch, show_time
from millrace_protocol.dissect.span import (
    DEFAULT_LIMITS,
    Buffer,
    Limits,
    Span,
    ValueDissector,
)
from millrace_protocol.framing import MAGIC as FRAME_MAGIC
from millrace_protocol.records import BATCH_LENGTH_MIN, HEADER_SIZE
from millrace_protocol.records.header import MAGIC

_BATCH_OPENING = struct.Struct(">qi4xb")
_LENGTH_FIELD = struct.Struct(">8xi")
_INDEX_ENTRY = struct.Struct(">ii")
_TIME_INDEX_ENTRY = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_BASE_OFFSET_DIGITS = 20


def base_offset_of(file_name: str) -> int | None:
    """The offset a segment file is named for, or None if the name is not one.

    >>> base_offset_of("00000000000000000042.log")
    42
    """
    stem = file_name.rpartition("/")[2].partition(".")[0]
    digits = len(stem) == _BASE_OFFSET_DIGITS and stem.isascii() and stem.isdigit()
    return int(stem) if digits else None


def is_segment(data: Buffer) -> bool:
    """Whether `data` opens with the header of a batch, as a segment does, and not with a frame."""
    if len(data) < HEADER_SIZE or bytes(data[4:6]) == FRAME_MAGIC:
        return False
    base_offset, batch_length, magic = _BATCH_OPENING.unpack_from(data, 0)
    return bool(base_offset >= 0 and batch_length >= BATCH_LENGTH_MIN and magic == MAGIC)


def dissect_segment(
    data: Buffer, *, limits: Limits = DEFAULT_LIMITS, values: ValueDissector | None = None
) -> Iterator[Span]:
    """One span per batch of a `.log` file, then one for the preallocated tail if there is one.

    `values` explains the values of its records.
    """
    position = 0
    index = 0
    end = len(data)
    while position < end:
        if _is_tail(data, position):
            note = "preallocated: a batch length of 0 ends the log"
            yield Span(position, end, "tail", "bytes", note=note, buffer=data)
            return
        span = dissect_batch(
            data, position, end, name=f"batch[{index}]", limits=limits, values=values
        )
        yield replace(span, buffer=data)
        if span.fault:
            return
        position = span.end
        index += 1


def _is_tail(data: Buffer, position: int) -> bool:
    if len(data) - position < _LENGTH_FIELD.size:
        return not any(memoryview(data)[position:])
    return bool(_LENGTH_FIELD.unpack_from(data, position)[0] == 0)


def dissect_index(data: Buffer, *, base_offset: int | None = None) -> Iterator[Span]:
    """One span per entry of an `.index` file: a relative offset and a position in the segment.

    The last span is the CRC of the entries, where the file has one.
    """
    names = ("relative_offset", "position")
    yield from _entries(data, _INDEX_ENTRY, names, base_offset=base_offset)


def dissect_time_index(data: Buffer, *, base_offset: int | None = None) -> Iterator[Span]:
    """One span per entry of a `.timeindex` file: a timestamp and the offset of its record.

    The last span is the CRC of the entries, where the file has one.
    """
    names = ("timestamp_ms", "relative_offset")
    yield from _entries(data, _TIME_INDEX_ENTRY, names, base_offset=base_offset)


def _entries(
    data: Buffer, layout: struct.Struct, names: tuple[str, str], *, base_offset: int | None
) -> Iterator[Span]:
    size = layout.size
    end = len(data) - len(data) % size
    before: tuple[int, int] | None = None
    for position in range(0, end, size):
        entry: tuple[int, int] = layout.unpack_from(data, position)
        if entry == (0, 0) and before is not None and not any(memoryview(data)[position:]):
            note = "preallocated: zeros"
            yield Span(position, len(data), "tail", "bytes", note=note, buffer=data)
            return
        fault = ""
        if before is not None and not _ascends(before, entry, names):
            fault = "not behind the entry before it: entries ascend"
        yield _entry(data, position, layout, names, entry, base_offset=base_offset, fault=fault)
        before = entry
    if len(data) - end == _CRC.size:
        yield _crc(data, end)
    elif end < len(data):
        fault = f"an entry has {size} bytes and {len(data) - end} are left"
        yield Span(end, len(data), "entry", "?", fault=fault, buffer=data)


def _crc(data: Buffer, position: int) -> Span:
    """The checksum at the end of an index, over all entries before it."""
    stored = _CRC.unpack_from(data, position)[0]
    computed = crc32c.crc32c(memoryview(data)[:position])
    fault = "" if stored == computed else f"the entries have 0x{computed:08x}"
    value = f"0x{stored:08x}"
    return Span(position, len(data), "crc", "u32", value, fault=fault, buffer=data)


def _ascends(before: tuple[int, int], entry: tuple[int, int], names: tuple[str, str]) -> bool:
    """Offsets and positions ascend from entry to entry; timestamps may also stay."""
    may_stay = names[0] == "timestamp_ms"
    first_ascends = before[0] <= entry[0] if may_stay else before[0] < entry[0]
    return first_ascends and before[1] < entry[1]


def _entry(
    data: Buffer,
    position: int,
    layout: struct.Struct,
    names: tuple[str, str],
    entry: tuple[int, int],
    *,
    base_offset: int | None,
    fault: str,
) -> Span:
    index = position // layout.size
    middle = position + layout.size - 4
    spans = []
    for name, value, start, end in (
        (names[0], entry[0], position, middle),
        (names[1], entry[1], middle, position + layout.size),
    ):
        note = ""
        if name == "relative_offset" and base_offset is not None:
            note = f"offset {base_offset + value}"
        elif name == "timestamp_ms":
            note = show_time(value)
        type_ = "int64" if end - start == 8 else "int32"
        spans.append(Span(start, end, f"entry[{index}].{name}", type_, value, note))
    return Span(
        position,
        position + layout.size,
        f"entry[{index}]",
        "entry",
        fault=fault,
        children=tuple(spans),
        buffer=data,
    )
