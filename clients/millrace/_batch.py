"""A producer's batch, and the handles by which a user waits for it.

Owns the raw columns until they are encoded, the encoded bytes until the ack, and the outcome from
then on. Knows no event loop: who waits does so through the batch's `owner`.

    open -> sealed -> encoded -> in flight -> settled
              ^                     |
              `------- retry -------'

Settled is for good: `settled` never goes back to False, and then no column and no bytes are held.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Generator, Sequence
from itertools import accumulate
from typing import Any, Protocol, overload

from millrace.errors import MillraceError
from millrace.records import Receipt
from millrace_protocol.records import Codec, Headers, encode_batch, seal

NO_SEQUENCE = -1
_SEQUENCE_MODULUS = 1 << 31
_PRODUCER_FIELDS = struct.Struct(">qhi")
_PRODUCER_FIELDS_POSITION = 43
"""Where producer id, epoch and base sequence stand in a batch header (W-5)."""


class Owner(Protocol):
    """Who can wait until a batch is settled."""

    async def settle(self, batch: Batch) -> None:
        """Returns once the batch is settled; cancelling the wait changes nothing else."""


class Batch:
    """Records of one partition that travel together.

    `size_bytes` is an upper bound of what the records take. `uncertain` means that an attempt
    ended without an answer, so the batch may be in the log. `ordinal` counts the batches of the
    partition in the order they were first sent in, -1 before. `partition` -1 is the antechamber of
    a topic whose partitions are not known yet: it is never sent, and is settled when its records
    have moved on, or have failed.
    """

    __slots__ = (
        "__weakref__",
        "base_offset",
        "count",
        "error",
        "headers",
        "hurried",
        "keys",
        "log_append_time_ms",
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
        "values",
        "waiters",
    )

    def __init__(self, owner: Owner, topic: str, partition: int, number: int) -> None:
        self.owner = owner
        self.topic = topic
        self.partition = partition
        self.number = number
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps_ms: list[int] = []
        self.size_bytes = 0
        self.count = 0
        self.opened_ms: int | None = None
        self.payload: bytearray | None = None
        self.sequence = NO_SEQUENCE
        self.ordinal = -1
        self.uncertain = False
        self.hurried = False
        self.settled = False
        self.observed = False
        self.error: MillraceError | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.waiters: list[Any] = []

    def add_key(self, key: bytes | None) -> None:
        """Appends to the key column, before the value is appended to its own."""
        if self.keys is None:
            self.keys = [None] * len(self.values)
        self.keys.append(key)

    def add_headers(self, headers: Headers) -> None:
        """Appends to the headers column, before the value is appended to its own."""
        if self.headers is None:
            self.headers = [()] * len(self.values)
        self.headers.append(headers)

    def encode(self, codec: Codec, producer_id: int, epoch: int, sequence: int) -> None:
        """Makes `payload` of the columns, which are dropped."""
        self.count = len(self.values)
        self.sequence = sequence
        self.payload = encode_batch(
            self.values,
            timestamps_ms=self.timestamps_ms,
            keys=self.keys,
            headers=self.headers,
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
        """Settles with success; `base_offset` -1 where nobody knows."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._settle()

    def fail(self, error: MillraceError) -> None:
        """Settles with an error."""
        self.error = error
        self._settle()

    def _settle(self) -> None:
        self.count = self.record_count
        self.settled = True
        self.values = []
        self.keys = self.headers = self.payload = None

    def receipt(self, index: int) -> Receipt:
        """The receipt of one record of a settled batch. Raises its error."""
        if self.error is not None:
            self.observed = True
            raise fresh(self.error)
        timestamp_ms = self.log_append_time_ms
        if timestamp_ms < 0:
            timestamp_ms = self.timestamps_ms[index]
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return Receipt(self.topic, self.partition, offset, timestamp_ms)


def fresh(error: MillraceError) -> MillraceError:
    """An equal exception that can be raised to one more waiter without sharing a traceback."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__ or error
    return copy


class Delivery:
    """What `send` returns: await it for the `Receipt`, or keep it, or drop it.

    Awaiting raises what became of the record where that was not an ack. Cancelling the await
    gives up the wait, not the record.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[Any, None, Receipt]:
        batch = self._batch
        while not batch.settled:
            yield from batch.owner.settle(batch).__await__()
            # A record moves on from its topic's antechamber to a partition's batch.
            batch = self._batch
        return batch.receipt(self._index)

    def done(self) -> bool:
        """Whether awaiting would return or raise at once."""
        return self._batch.settled

    def move(self, batch: Batch, index: int) -> None:
        """Follows the record to another batch."""
        self._batch = batch
        self._index = index

    def follow(self, other: Delivery, *, hurried: bool) -> None:
        """Follows the record to where `other` is; `hurried` when somebody waits for it."""
        self.move(other._batch, other._index)
        if hurried:
            self._batch.hurried = True


class Receipts(Sequence[Receipt]):
    """The receipts of many records, in their order, each made when it is looked at."""

    __slots__ = ("_ends", "_order", "_runs")

    def __init__(
        self, runs: list[tuple[Batch, int, int]], order: Sequence[int] | None = None
    ) -> None:
        """`runs` are `(batch, first index, count)`; `order` says where in them each record is."""
        self._runs = runs
        self._ends = list(accumulate(count for _, _, count in runs))
        self._order = order

    @classmethod
    def merged(cls, parts: Sequence[tuple[Sequence[int], Receipts]]) -> Receipts:
        """One for all of `parts`, each with the indices its records have in the whole."""
        runs: list[tuple[Batch, int, int]] = []
        order = [0] * sum(len(indices) for indices, _ in parts)
        place = 0
        for indices, receipts in parts:
            runs += receipts._runs
            for index in indices:
                order[index] = place
                place += 1
        return cls(runs, order)

    def batches(self) -> list[Batch]:
        """The batches that hold the records, each once."""
        return list(dict.fromkeys(batch for batch, _, _ in self._runs))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"receipt {index} of {len(self)}")
        if self._order is not None:
            place = self._order[place]
        run = bisect_right(self._ends, place)
        batch, first, count = self._runs[run]
        return batch.receipt(first + place - (self._ends[run] - count))
