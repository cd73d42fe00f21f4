"""Runs of records with one layout, read as the table they are.

Owns the reading of many records at once where their lengths repeat: measurements, fixed-width
rows, small commands. Refuses everything else, without a word about what is wrong with it: `decode`
reads that record by record. The layout of a record is drawn in `encode`.
"""

import struct
from itertools import chain
from typing import Final, NamedTuple

from millrace_protocol.records.fields import Malformed, read_varint

RUN_MIN: Final = 32
"""Records that a run must have to be faster than reading them one by one."""
_ONE_BYTE: Final = bytes(range(128))
_TIME_DELTAS: Final = [(byte >> 1) ^ -(byte & 1) for byte in _ONE_BYTE]
_OFFSET_DELTA_BYTES: Final = {
    1: (0, (bytes(delta * 2 for delta in range(64)),)),
    2: (
        64,
        (
            bytes(delta * 2 & 0x7F | 0x80 for delta in range(64, 8192)),
            bytes(delta * 2 >> 7 for delta in range(64, 8192)),
        ),
    ),
}
"""By width: the first delta of that width, and each byte of all of them in a row."""


class TableRun(NamedTuple):
    """The records of a run, and where it ends in the buffer.

    Time deltas are in `[-64, 64)`. Keys are None where all are null.
    """

    end: int
    time_deltas: list[int]
    keys: list[bytes] | None
    values: list[bytes]


# Records whose keys are of one size, and values too, are rows of a table: the same field is at the
# same place of every row, and `buf[place:end:row_size]` is that byte of all rows, taken in C at a
# nanosecond each. The layout is read off the first row. Then every byte that says how the others
# are to be read, the lengths, the header count, must be in all rows what it is in the first; time
# deltas may differ but must be of one byte; and the bytes of the offset deltas must be those of
# consecutive numbers. Where a column differs from some row on, the run ends before that row. What
# is left in a row are keys and values, and `struct` cuts them out.
def read_table_run(
    buf: bytes, position: int, end: int, *, first_delta: int, count: int, width: int
) -> TableRun | None:
    """Read up to `count` records of one layout, the first at `position`; None if they are few.

    `first_delta` is the offset delta of the first, and `width` the bytes of each. What is returned
    is completely checked, and does not reach beyond `end`.
    """
    if width not in _OFFSET_DELTA_BYTES:
        return None
    try:
        length, body = read_varint(buf, position)
        row_size = body + length - position
        time_place = body + 1 - position
        key_size, key_start = read_varint(buf, body + 2 + width)
        value_size, value_start = read_varint(buf, key_start + max(key_size, 0))
    except (IndexError, Malformed):
        return None
    key_place = key_start - position
    value_place = value_start - position
    if key_size < -1 or value_size < 0 or value_place + value_size + 1 != row_size:
        return None

    count = min(count, (end - position) // row_size)
    constants = (
        *range(body - position),
        *range(time_place + 1 + width, key_place),
        *range(key_place + max(key_size, 0), value_place),
    )
    for place in constants:
        if count < RUN_MIN:
            return None
        column = buf[position + place : position + count * row_size : row_size]
        count = _rows_within(column, column[:1])
    stop = position + count * row_size
    count = _rows_within(buf[position + row_size - 1 : stop : row_size], b"\0")
    times = buf[position + time_place : stop : row_size][:count]
    count = _rows_within(times, _ONE_BYTE)
    if count < RUN_MIN:
        return None
    stop = position + count * row_size
    table_first, tables = _OFFSET_DELTA_BYTES[width]
    low = first_delta - table_first
    for place, table in enumerate(tables, position + time_place + 1):
        if buf[place:stop:row_size] != table[low : low + count]:
            return None

    rows = memoryview(buf)[position:stop]
    if key_size < 0:
        fields = struct.iter_unpack(f"{value_place}x{value_size}sx", rows)
        keys, values = None, list(chain.from_iterable(fields))
    else:
        gap = value_place - key_place - key_size
        fields = struct.iter_unpack(f"{key_place}x{key_size}s{gap}x{value_size}sx", rows)
        both = list(chain.from_iterable(fields))
        keys, values = both[::2], both[1::2]
    return TableRun(stop, _time_deltas(times[:count]), keys, values)


def _rows_within(column: bytes, allowed: bytes) -> int:
    """How many rows at the beginning have an allowed byte."""
    return len(column) - len(column.lstrip(allowed))


def _time_deltas(column: bytes) -> list[int]:
    if _rows_within(column, column[:1]) == len(column):
        return [_TIME_DELTAS[column[0]]] * len(column)
    return [_TIME_DELTAS[byte] for byte in column]
