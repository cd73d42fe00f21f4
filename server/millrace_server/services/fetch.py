"""Fetch: slices of the log, at once or as soon as there is something (wire_spec.md W-4.4).

A fetch that finds too little waits as an object in the watch lists of its partitions; it has no
task, and its deadline is an entry in a heap that all waiting requests share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import FileSlice
from millrace_server.loop.fair_scheduler import cut
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.purgatory import Purgatory, Waiting

WAITING_ENTRIES_MAX = 50_000
"""Entries of all waiting fetches together, but for those that may always wait: each takes some
500 bytes of memory, and a fetch some 3,000."""
FEW_ENTRIES = 10
"""The first fetch of a client may always wait, when it names so few partitions."""
ENTRIES_PER_FETCH = 6
"""What a waiting fetch costs beside its entries, counted in entries."""
PIECE_ENTRIES = 12
"""Read in one go, some 100 us on a busy machine; a fetch of more is read in pieces."""


@dataclass(slots=True)
class FetchFrom:
    """Where to read one partition from; `leader_epoch` is -1 when the client knows none."""

    topic: str
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1


@dataclass(slots=True)
class Fetched:
    """What one partition holds from the offset asked for. Whoever gets it releases `records`."""

    topic: str
    partition: int
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    records: FileSlice | None = None


class FetchService:
    """The fetch service."""

    def __init__(self, partitions: PartitionTable, waiting: Purgatory) -> None:
        self._partitions = partitions
        self._waiting = waiting
        self._waiting_entries = 0

    def fetch(
        self,
        wanted: Sequence[FetchFrom],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        is_first: bool,
    ) -> list[Fetched] | asyncio.Future[list[Fetched]]:
        """Reads each partition in turn until `max_bytes` are found; results in the same order.

        ResponseQueue at once when there are `min_bytes`, when a partition has an error, when
        `max_wait_ms` is 0, or when too many wait; else later, with what there is by then.
        `is_first`: nothing that the client asked for before is still waiting.
        """
        # More than `max_bytes` never comes, so nobody waits for it.
        min_bytes = min(min_bytes, max_bytes)
        results, size, refused = self._read(wanted, max_bytes)
        if (
            refused
            or size >= min_bytes
            or max_wait_ms <= 0
            or not self._may_wait(len(wanted), is_first=is_first)
        ):
            return results
        sizes = [0 if found.records is None else found.records.size for found in results]
        _release(results)

        def answer() -> None:
            results, _, _ = self._read(wanted, max_bytes)
            if not waiting.finish(results):
                _release(results)

        waiting: Waiting[list[Fetched]] = self._waiting.enter(max_wait_ms, on_due=answer)
        watch = self._watch(waiting, answer, len(wanted), min_bytes=min_bytes, max_bytes=max_bytes)
        for want, size in zip(wanted, sizes, strict=True):
            watch.add(want, size)
        return waiting.future

    def fetch_in_pieces(
        self,
        wanted: Sequence[FetchFrom],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        is_first: bool,
    ) -> Generator[None, None, list[Fetched] | asyncio.Future[None]]:
        """The same for a fetch of many partitions: others go first at each `yield`.

        A future says no more than that it is time to fetch again, without waiting.
        """
        min_bytes = min(min_bytes, max_bytes)
        results: list[Fetched] = []
        size, any_refused = 0, False
        try:
            for piece in _pieces(wanted):
                found, found_bytes, refused = self._read(piece, max_bytes - size)
                results += found
                size += found_bytes
                any_refused = any_refused or refused
                yield
        except GeneratorExit:
            _release(results)
            raise
        if (
            any_refused
            or size >= min_bytes
            or max_wait_ms <= 0
            or not self._may_wait(len(wanted), is_first=is_first)
        ):
            return results
        _release(results)

        def answer() -> None:
            waiting.finish(None)

        waiting: Waiting[None] = self._waiting.enter(max_wait_ms, on_due=answer)
        watch = self._watch(waiting, answer, len(wanted), min_bytes=min_bytes, max_bytes=max_bytes)
        try:
            for piece in _pieces(wanted):
                for want in piece:
                    watch.add(want)
                if waiting.future.done():
                    break
                yield
        except GeneratorExit:
            waiting.future.cancel()
            raise
        return waiting.future

    def _may_wait(self, entries: int, *, is_first: bool) -> bool:
        return (is_first and entries <= FEW_ENTRIES) or (
            self._waiting_entries + entries <= WAITING_ENTRIES_MAX
        )

    def _watch(
        self,
        waiting: Waiting[Any],
        answer: Callable[[], None],
        entries: int,
        *,
        min_bytes: int,
        max_bytes: int,
    ) -> _Watch:
        watch = _Watch(self._partitions, waiting, answer, min_bytes=min_bytes, max_bytes=max_bytes)
        # A fetch of its own costs as much as a few entries.
        entries += ENTRIES_PER_FETCH
        self._waiting_entries += entries

        def leave(_: object) -> None:
            self._waiting_entries -= entries
            watch.close()

        waiting.future.add_done_callback(leave)
        return watch

    def _read(self, wanted: Sequence[FetchFrom], max_bytes: int) -> tuple[list[Fetched], int, bool]:
        results: list[Fetched] = []
        size = 0
        refused = False
        for want in wanted:
            try:
                fetched = _read_one(self._partitions, want, max_bytes - size)
            except CORE_ERRORS as error:
                fetched = self._refused(want, as_api_error(error))
                refused = True
            results.append(fetched)
            if fetched.records is not None:
                size += fetched.records.size
        return results, size, refused

    def _refused(self, want: FetchFrom, refused: ApiError) -> Fetched:
        fetched = Fetched(want.topic, want.partition, refused.code, refused.message)
        if refused.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            partition = self._partitions.get(want.topic, want.partition)
            fetched.high_watermark = partition.high_watermark
            fetched.log_start_offset = partition.log.start_offset
        return fetched


class _Watch:
    """What one waiting fetch watches: it looks at a partition when that has grown, and at no other.

    A request may name two thousand, and each append to one of them comes by here. One that is
    named twice counts once, from the lower offset.
    """

    __slots__ = (
        "_answer",
        "_max_bytes",
        "_min_bytes",
        "_partitions",
        "_size",
        "_waiting",
        "_watched",
    )

    def __init__(
        self,
        partitions: PartitionTable,
        waiting: Waiting[Any],
        answer: Callable[[], None],
        *,
        min_bytes: int,
        max_bytes: int,
    ) -> None:
        self._partitions = partitions
        self._waiting = waiting
        self._answer = answer
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._size = 0
        self._watched: dict[tuple[str, int], _Watched] = {}

    def add(self, want: FetchFrom, size: int | None = None) -> None:
        """Watches one more partition; what it holds already is `size`, or looked at."""
        if self._waiting.future.done():
            return
        key = (want.topic, want.partition)
        known = self._watched.get(key)
        if known is None:
            try:
                partition = self._partitions.get(want.topic, want.partition)
            except CORE_ERRORS:
                self._answer()
                return
            known = self._watched[key] = _Watched(want, partition, self._look)
            partition.watchers[known.watcher] = None
        elif want.offset >= known.want.offset:
            return
        known.want = want
        if size is None:
            self._look(known)
        else:
            self._size += size - known.size
            known.size = size

    def close(self) -> None:
        """Nothing is watched any more."""
        for known in self._watched.values():
            known.partition.watchers.pop(known.watcher, None)
            # It refers to `known`: a cycle, which would stay until all garbage is looked for.
            del known.watcher
        self._watched.clear()

    def _look(self, known: _Watched) -> None:
        try:
            fetched = _read_one(self._partitions, known.want, self._max_bytes)
        except CORE_ERRORS:
            self._answer()
            return
        if fetched.records is None:
            return
        size = fetched.records.size
        fetched.records.release()
        self._size += size - known.size
        known.size = size
        if self._size >= self._min_bytes:
            self._answer()


@dataclass(slots=True, eq=False)
class _Watched:
    """A partition that a waiting fetch watches, and how much of it was there at the last look."""

    want: FetchFrom
    partition: Partition
    look: InitVar[Callable[[_Watched], None]]
    size: int = 0
    watcher: Callable[[], None] = field(init=False)

    def __post_init__(self, look: Callable[[_Watched], None]) -> None:
        self.watcher = partial(look, self)


def _pieces(wanted: Sequence[FetchFrom]) -> Iterator[list[FetchFrom]]:
    return cut(wanted, PIECE_ENTRIES, lambda want: want.topic)


def _read_one(partitions: PartitionTable, want: FetchFrom, left: int) -> Fetched:
    partition = partitions.get(want.topic, want.partition)
    if want.leader_epoch not in (-1, partition.leader_epoch):
        _refuse_epoch(want, partition)
    found = None
    if left > 0:
        found = partition.read(want.offset, max_bytes=min(want.max_bytes, left))
    return Fetched(
        want.topic,
        want.partition,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log.start_offset,
        records=None if found is None else found.slice,
    )


def _release(results: Sequence[Fetched]) -> None:
    for fetched in results:
        if fetched.records is not None:
            fetched.records.release()


def _refuse_epoch(want: FetchFrom, partition: Partition) -> None:
    if want.leader_epoch < partition.leader_epoch:
        code, word = ErrorCode.FENCED_LEADER_EPOCH, "older"
    else:
        code, word = ErrorCode.UNKNOWN_LEADER_EPOCH, "newer"
    raise ApiError(
        code,
        f"Leader epoch {want.leader_epoch} is {word} than the broker's {partition.leader_epoch} "
        f"for {want.topic}-{want.partition}; refresh the metadata",
    )
