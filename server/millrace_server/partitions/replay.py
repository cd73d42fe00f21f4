"""Reads a partition's records back, for a service that keeps its state in one.

Owns the way from a slice of the log to records; what they mean is the reader's.
"""

from __future__ import annotations

from millrace_protocol.records import decode_records, read_header
from millrace_protocol.records.encode import Record
from millrace_server.environment.seams import FileSlice, ReadBuffer

READ_BYTES = 1 << 20
"""Read at once: some 10,000 records."""


def records_in(found: FileSlice, from_offset: int) -> list[Record]:
    """The records of a slice from `from_offset` on; releases the slice. Blocking.

    Raises `OSError`, and `CorruptBatch` when the bytes are not as written.
    """
    try:
        data = found.read()
    finally:
        found.release()
    return [record for record in decoded(data) if record[0] >= from_offset]


def decoded(data: ReadBuffer) -> list[Record]:
    """The records of whole batches. Raises `CorruptBatch`."""
    records: list[Record] = []
    position = 0
    while position < len(data):
        records += decode_records(data, position)
        position += read_header(data, position).size_bytes
    return records
