"""Handles to await for records that were sent, and the receipts of the acked.

    send       ->  Delivery    -- await ->  Receipt
    send_many  ->  Deliveries  -- await ->  Receipts

Knows no event loop: waiting is done by the batches' owner.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import accumulate
from typing import Any, overload

from millrace._producer.batch import Batch, Owner
from millrace.errors import MillraceError, again
from millrace.records import Receipt

Run = tuple[Batch, int, int]
"""Records that lie together: `(batch, first index, count)`."""


class Delivery:
    """What `send` returns: await it for the `Receipt`, or keep it, or drop it.

    Awaiting raises what became of the record where that was not an ack. Cancelling the await
    gives up the wait, not the record.
    """

    # No `__init__`: `Producer.send` fills in both, which takes half the time of calling one.
    __slots__ = ("_batch", "_index")
    _batch: Batch
    _index: int

    @classmethod
    def of(cls, batch: Batch, index: int) -> Delivery:
        """The handle of the record at `index` of a batch."""
        made = cls()
        made._batch, made._index = batch, index
        return made

    def __await__(self) -> Generator[Any, None, Receipt]:
        batch, index = self.place()
        while not batch.settled:
            yield from batch.owner.settle(batch).__await__()
            # A record moves on: from the unassigned batch of its topic, and from a batch that is
            # split.
            batch, index = self.place()
        return batch.receipt(index)

    def done(self) -> bool:
        """Whether awaiting would return or raise at once."""
        return self.place()[0].settled

    def place(self) -> tuple[Batch, int]:
        """The batch that the record is in now, and its index there."""
        return _place_now(self._batch, self._index)


class Deliveries:
    """What `send_many` returns: await it for the `Receipts`, or keep it, or drop it.

    Awaiting returns when all records are settled, and raises what became of the first batch that
    was not acked. Cancelling the await gives up the wait, not the records.
    """

    __slots__ = ("_count", "_order", "_owner", "_runs", "_taken")

    def __init__(self, owner: Owner, count: int) -> None:
        self._owner = owner
        self._count = count
        self._taken = 0
        self._runs: list[Run] = []
        self._order: list[int] | None = None

    def __len__(self) -> int:
        return self._count

    def __await__(self) -> Generator[Any, None, Receipts]:
        return self._settled(self._owner.settle).__await__()

    async def settled(self) -> Receipts:
        """The same as awaiting, but the records wait up to `linger_ms` for others to travel with.

        Awaiting has them sent at once.
        """
        return await self._settled(self._owner.settle_after_linger)

    async def _settled(self, settle: Callable[[Batch], Awaitable[None]]) -> Receipts:
        while self._taken < self._count:
            await self._owner.room()
        receipts = Receipts(self._runs, self._order)
        known: set[Batch] = set()
        failed: MillraceError | None = None
        # Records move on: from the unassigned batch of their topic, and from a batch that is split.
        while unknown := [batch for batch in receipts.batches() if batch not in known]:
            known.update(unknown)
            for batch in unknown:
                await settle(batch)
                failed = failed or batch.error
        if failed is not None:
            raise again(failed)
        return receipts

    def done(self) -> bool:
        """Whether awaiting would return or raise at once."""
        if self._taken < self._count:
            return False
        return all(batch.settled for batch in Receipts(self._runs).batches())

    def took(self, runs: list[Run], rows: Sequence[int] | None = None) -> int:
        """Notes where the next records are, `rows` of them where it is not in their order.

        `rows` are counted from the first of them. Returns how many are in batches now.
        """
        first = self._taken
        self._runs += runs
        self._taken += sum(count for _, _, count in runs)
        if rows is not None or self._order is not None:
            if self._order is None:
                self._order = list(range(first))
            self._order += inverse(rows or range(self._taken - first), first)
        return self._taken


class Receipts(Sequence[Receipt]):
    """The receipts of many records, in their order, each made when it is looked at."""

    __slots__ = ("_ends", "_order", "_runs")

    def __init__(self, runs: list[Run], order: Sequence[int] | None = None) -> None:
        """`order` says where in the runs each record is; None: in their order."""
        self._runs = runs
        self._ends = list(accumulate(count for _, _, count in runs))
        self._order = order

    def batches(self) -> list[Batch]:
        """The batches that hold the records, each once; where records moved, those they are in."""
        found: dict[Batch, None] = {}
        for batch, first, count in self._runs:
            if batch.moved is None:
                found[batch] = None
            else:
                for index in range(first, first + count):
                    found[_place_now(batch, index)[0]] = None
        return list(found)

    def place(self, index: int) -> tuple[Batch, int]:
        """The batch of record `index`, and its index there."""
        if self._order is not None:
            index = self._order[index]
        run = bisect_right(self._ends, index)
        batch, first, count = self._runs[run]
        return batch, first + index - (self._ends[run] - count)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        forward = index + len(self) if index < 0 else index
        if not 0 <= forward < len(self):
            raise IndexError(f"receipt {index} of {len(self)}")
        batch, place = self.place(forward)
        return batch.receipt(place)


def _place_now(batch: Batch, index: int) -> tuple[Batch, int]:
    """Where a record is now that was at `index` of `batch`."""
    while batch.moved is not None:
        batch, index = batch.moved.place(index)
    return batch, index


def inverse(rows: Sequence[int], first: int = 0) -> list[int]:
    """Where each row is, from `first` on, when they lie in the order of `rows`."""
    places = [0] * len(rows)
    for place, row in enumerate(rows, first):
        places[row] = place
    return places
