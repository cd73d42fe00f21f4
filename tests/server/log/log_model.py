"""A log's content as plain lists, and how to read a real log into the same form."""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace_protocol.records import decode_fetch, encode_batch, read_header
from millrace_server.log import Appended, PartitionLog

DIRECTORY = "orders-0"


def append(
    log: PartitionLog,
    values: list[bytes],
    *,
    timestamps_ms: int | list[int] = 1000,
    now_ms: int = 1000,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int | None = None,
) -> Appended:
    """Appends one batch as a producer would have sent it."""
    batch = encode_batch(
        values,
        timestamps_ms=timestamps_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    if leader_epoch is not None:
        log.begin_epoch(leader_epoch)
    return log.append(batch, read_header(batch), now_ms=now_ms)


def fetch(
    log: PartitionLog, offset: int, *, max_bytes: int = 2**20, end_offset: int | None = None
) -> tuple[list[tuple[int, int, bytes | None]], int]:
    """Reads once from `offset`: the records as (offset, timestamp, value), and where to go on.

    Fails if the slice is not whole batches, or if what the log says of it is not true.
    """
    end = log.end_offset if end_offset is None else end_offset
    read = log.reader.read(offset, max_bytes=max_bytes, end_offset=end)
    if read.slice is None:
        return [], read.next_offset
    part = read.slice
    data = part.file.pread(part.size, part.position)
    part.release()
    assert len(data) == part.size
    found, reached, count = [], offset, 0
    for records, next_offset in decode_fetch(data):
        found += [(record[0], record[1], record[3]) for record in records]
        reached, count = next_offset, count + 1
    assert reached == read.next_offset
    assert offset <= found[-1][0], "the batch that holds the offset, or is behind it, comes first"
    return [record for record in found if record[0] >= offset], reached


def read_all(
    log: PartitionLog, *, max_bytes: int = 2**20, end_offset: int | None = None
) -> list[tuple[int, int, bytes | None]]:
    """Reads everything from the start on."""
    end = log.end_offset if end_offset is None else end_offset
    found: list[tuple[int, int, bytes | None]] = []
    offset = log.start_offset
    while offset < end:
        records, offset = fetch(log, offset, max_bytes=max_bytes, end_offset=end)
        assert records
        found += records
    return found


@dataclass
class LogModel:
    """What a log should hold: `records[i]` has offset `i`; `durable` of them must survive."""

    records: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    durable: int = 0
    start: int = 0

    def extend(self, values: list[bytes], timestamps_ms: list[int]) -> None:
        """Notes a batch that the log has taken."""
        for value, timestamp in zip(values, timestamps_ms, strict=True):
            self.records.append((len(self.records), timestamp, value))

    def first_at_or_after(self, timestamp_ms: int, end_offset: int) -> tuple[int, int] | None:
        """The (timestamp, offset) a lookup should find."""
        for offset, timestamp, _ in self.records[self.start : end_offset]:
            if timestamp >= timestamp_ms:
                return timestamp, offset
        return None

    def newest(self, end_offset: int) -> tuple[int, int] | None:
        """The (timestamp, offset) of the first record with the largest timestamp."""
        visible = self.records[self.start : end_offset]
        if not visible:
            return None
        largest = max(timestamp for _, timestamp, _ in visible)
        return self.first_at_or_after(largest, end_offset)
