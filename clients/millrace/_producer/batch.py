"""A producer's batch.

Owns the raw columns until they are encoded, the encoded bytes until the ack, and the outcome from
then on. Knows no event loop: callers wait through the batch's `owner`, by the handles in
`receipts`.

    open -> sealed -> encoded -> in flight -> settled
              ^                     |
              `------- retry -------'

Settled is for good: `settled` never goes back to False, and then no column and no bytes are held.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import Any, Protocol

from millrace._producer.columns import Columns
from millrace.errors import MillraceError, again
from millrace.records import Receipt
from millrace_protocol.records import Codec, Headers, encode_batch, seal

NO_SEQUENCE = -1
Number = tuple[int, ...]
_SEQUENCE_MODULUS = 1 << 31
_PRODUCER_FIELDS = struct.Struct(">qhi")
_PRODUCER_FIELDS_POSITION = 43
"""Where producer id, epoch and base sequence stand in a batch header (W-5)."""


class Owner(Protocol):
    """What waits until a batch is settled."""

    async def settle(self, batch: Batch) -> None:
        """Returns once the batch is settled; cancelling the wait changes nothing else."""

    async def settle_after_linger(self, batch: Batch) -> None:
        """The same, and the batch may wait for more records."""

    async def room(self) -> None:
        """Returns once there may be room for records that are in no batch."""


class Places(Protocol):
    """Where the records of a batch are after they were moved; `Receipts` is one."""

    def batches(self) -> list[Batch]:
        """The batches that hold the records, each once."""

    def place(self, index: int) -> tuple[Batch, int]:
        """The batch of record `index`, and its index there."""

    def __getitem__(self, index: int, /) -> Receipt:
        """The receipt of record `index`."""


class Batch:
    """Records of one partition that travel together.

    `size_bytes` is an upper bound of what the records take, and `limit_bytes` what it may grow to:
    -1 once the batch is sealed. `uncertain` means that an attempt ended without an answer, so the
    batch may be in the log. `ordinal` counts the batches of the partition in the order they were
    first sent in, -1 before. `partition` -1 is the unassigned batch of a topic whose partitions are
    not known yet: it is never sent, and is settled when its records have moved on, or have failed.
    `moved` says where to, of an unassigned batch and of one that was split. `encoded_bytes` is the
    size of what was encoded, once it is settled. `number` orders the
    batches of a producer as they were opened, and the parts of one that was split in its place.

    The first `value_bytes_count` values are of `value_bytes` each, which saves the encoder a look.
    Time is kept by runs, as records by the thousand are sent in one turn of the loop: those that
    `timestamps_ms` does not reach have `clock_ms`.
    """

    __slots__ = (
        "__weakref__",
        "base_offset",
        "clock_ms",
        "count",
        "encoded_bytes",
        "error",
        "flush_now",
        "headers",
        "keys",
        "limit_bytes",
        "log_append_time_ms",
        "moved",
        "number",
        "observed",
        "opened_ms",
        "ordinal",
        "owner",
        "partition",
        "payload",
        "sequence",
        "settled",
        "size_bytes",
        "timestamps_ms",
        "topic",
        "uncertain",
        "value_bytes",
        "value_bytes_count",
        "values",
        "waiters",
    )

    def __init__(
        self, owner: Owner, topic: str, partition: int, number: Number, limit_bytes: int
    ) -> None:
        self.owner = owner
        self.topic = topic
        self.partition = partition
        self.number = number
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps_ms: list[int] = []
        self.clock_ms = -1
        self.value_bytes: int | None = None
        self.value_bytes_count = 0
        self.size_bytes = 0
        self.limit_bytes = limit_bytes
        self.count = 0
        self.opened_ms: int | None = None
        self.payload: bytearray | None = None
        self.encoded_bytes = 0
        self.sequence = NO_SEQUENCE
        self.ordinal = -1
        self.uncertain = False
        self.flush_now = False
        self.settled = False
        self.observed = False
        self.error: MillraceError | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.waiters: list[Any] = []
        self.moved: Places | None = None

    @property
    def is_plain(self) -> bool:
        """Whether no record has a key or headers, so that there is no column of them."""
        return self.keys is None and self.headers is None

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size_bytes: int,
    ) -> int:
        """Takes one record and returns its index."""
        index = len(self.values)
        if timestamp_ms != self.clock_ms:
            self._write_times()
            self.clock_ms = timestamp_ms
        if key is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * index
            self.keys.append(key)
        if headers or self.headers is not None:
            if self.headers is None:
                self.headers = [()] * index
            self.headers.append(headers)
        self.values.append(value)
        self.size_bytes += size_bytes
        return index

    def extend(self, columns: Columns, start: int, end: int, size_bytes: int) -> int:
        """Takes the records in `[start, end)` of `columns`; returns the index of the first."""
        index = len(self.values)
        if index == 0:
            self.value_bytes = columns.value_bytes
        if index == self.value_bytes_count and self.value_bytes == columns.value_bytes:
            self.value_bytes_count += end - start
        keys, headers, timestamps_ms = columns.keys, columns.headers, columns.timestamps_ms
        if not isinstance(timestamps_ms, int):
            self._write_times()
            self.timestamps_ms.extend(timestamps_ms[start:end])
        elif timestamps_ms != self.clock_ms:
            self._write_times()
            self.clock_ms = timestamps_ms
        if keys is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * index
            self.keys.extend(repeat(None, end - start) if keys is None else keys[start:end])
        if headers is not None or self.headers is not None:
            if self.headers is None:
                self.headers = [()] * index
            self.headers.extend(repeat((), end - start) if headers is None else headers[start:end])
        self.values.extend(columns.values[start:end])
        self.size_bytes += size_bytes
        return index

    def _write_times(self) -> None:
        """Makes `timestamps_ms` as long as `values`."""
        missing = len(self.values) - len(self.timestamps_ms)
        self.timestamps_ms.extend(repeat(self.clock_ms, missing))

    def columns(self) -> Columns:
        """The records of a batch that is not encoded."""
        timestamps_ms: list[int] | int = self.clock_ms
        if self.timestamps_ms:
            self._write_times()
            timestamps_ms = self.timestamps_ms
        return Columns(self.values, self.keys, self.headers, timestamps_ms)

    def encode(self, codec: Codec, producer_id: int, epoch: int, sequence: int) -> None:
        """Makes `payload` of the columns, which are dropped."""
        columns = self.columns()
        self.count = len(columns.values)
        self.sequence = sequence
        self.payload = encode_batch(
            columns.values,
            timestamps_ms=columns.timestamps_ms,
            keys=columns.keys,
            headers=columns.headers,
            value_bytes=self.value_bytes if self.count == self.value_bytes_count else None,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        self.values = []
        self.keys = self.headers = None

    def renumber(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Gives an encoded batch, which is in no log, another place in the producer's order."""
        assert self.payload is not None
        self.sequence = sequence
        _PRODUCER_FIELDS.pack_into(
            self.payload, _PRODUCER_FIELDS_POSITION, producer_id, epoch, sequence
        )
        seal(self.payload)

    @property
    def next_sequence(self) -> int:
        """The sequence of the batch after this one."""
        return (self.sequence + self.count) % _SEQUENCE_MODULUS

    @property
    def record_count(self) -> int:
        """How many records it holds, encoded or not."""
        return self.count or len(self.values)

    def ack(self, base_offset: int, log_append_time_ms: int) -> None:
        """Settles with success; `base_offset` -1 where it is not known."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._settle()

    def fail(self, error: MillraceError) -> None:
        """Settles with an error."""
        self.error = error
        self._settle()

    def move(self, to: Places) -> None:
        """Settles because the records have gone elsewhere, all of them and in this order."""
        self.moved = to
        self._settle()

    def _settle(self) -> None:
        self.count = self.record_count
        self.encoded_bytes = len(self.payload or b"")
        self.settled = True
        self.limit_bytes = -1
        self.values = []
        self.keys = self.headers = self.payload = None

    def receipt(self, index: int) -> Receipt:
        """The receipt of one record of a settled batch. Raises its error."""
        if self.error is not None:
            self.observed = True
            raise again(self.error)
        if self.moved is not None:
            return self.moved[index]
        timestamp_ms = self.log_append_time_ms
        if timestamp_ms < 0:
            times = self.timestamps_ms
            timestamp_ms = times[index] if index < len(times) else self.clock_ms
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return Receipt(self.topic, self.partition, offset, timestamp_ms)
