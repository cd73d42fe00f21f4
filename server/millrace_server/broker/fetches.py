"""Fetch: slices of the log, at once or as soon as there is something (wire_spec.md W-4.4).

A fetch that finds too little waits as an object in the watch lists of its partitions; it has no
task, and its deadline is an entry in a heap that all waiting requests share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from millrace_protocol.errors import ErrorCode
from millrace_server.broker.partition import Partition
from millrace_server.broker.partitions import Partitions
from millrace_server.broker.refusals import CORE_REFUSALS, as_refused
from millrace_server.broker.waiting import Waiting, WaitingRoom
from millrace_server.host import FileSlice
from millrace_server.refusal import Refused

WAITING_ENTRIES_MAX = 200_000
"""Entries of all waiting fetches together: each takes some 500 bytes of memory."""
FEW_ENTRIES = 10
"""Fetches of so few partitions may always wait."""


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
    sentence: str | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    records: FileSlice | None = None


@dataclass(slots=True, eq=False)
class _Watched:
    """A partition that a waiting fetch watches, and how much of it was there at the last look."""

    want: FetchFrom
    size: int = 0


class Fetches:
    """The fetch service."""

    def __init__(self, partitions: Partitions, waiting: WaitingRoom) -> None:
        self._partitions = partitions
        self._waiting = waiting
        self._waiting_entries = 0

    def fetch(
        self, wanted: Sequence[FetchFrom], *, max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> list[Fetched] | asyncio.Future[list[Fetched]]:
        """Reads each partition in turn until `max_bytes` are found; results in the same order.

        Answers at once when there are `min_bytes`, when a partition has an error, when
        `max_wait_ms` is 0, or when too many wait; else later, with what there is by then.
        """
        # More than `max_bytes` never comes, so nobody waits for it.
        min_bytes = min(min_bytes, max_bytes)
        results, size, refused = self._read(wanted, max_bytes)
        if refused or size >= min_bytes or max_wait_ms <= 0:
            return results
        if len(wanted) > FEW_ENTRIES and self._waiting_entries > WAITING_ENTRIES_MAX:
            return results
        _release(results)
        return self._wait(
            wanted, results, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes
        )

    def _read(self, wanted: Sequence[FetchFrom], max_bytes: int) -> tuple[list[Fetched], int, bool]:
        results: list[Fetched] = []
        size = 0
        refused = False
        for want in wanted:
            try:
                fetched = self._read_one(want, max_bytes - size)
            except CORE_REFUSALS as error:
                fetched = self._refused(want, as_refused(error))
                refused = True
            results.append(fetched)
            if fetched.records is not None:
                size += fetched.records.size
        return results, size, refused

    def _read_one(self, want: FetchFrom, left: int) -> Fetched:
        partition = self._partitions.get(want.topic, want.partition)
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

    def _refused(self, want: FetchFrom, refused: Refused) -> Fetched:
        fetched = Fetched(want.topic, want.partition, refused.code, refused.sentence)
        if refused.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            partition = self._partitions.get(want.topic, want.partition)
            fetched.high_watermark = partition.high_watermark
            fetched.log_start_offset = partition.log.start_offset
        return fetched

    def _wait(
        self,
        wanted: Sequence[FetchFrom],
        found: Sequence[Fetched],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
    ) -> asyncio.Future[list[Fetched]]:
        """Looks again at a partition when it has grown, and at that one alone.

        A request may name two thousand, and each append to one of them comes by here. One that is
        named twice counts once, from the lower offset.
        """
        watched: dict[tuple[str, int], _Watched] = {}
        for want, result in zip(wanted, found, strict=True):
            known = watched.setdefault((want.topic, want.partition), _Watched(want))
            if want.offset <= known.want.offset:
                known.want = want
                known.size = 0 if result.records is None else result.records.size
        total_bytes = sum(known.size for known in watched.values())

        def look(known: _Watched) -> None:
            nonlocal total_bytes
            try:
                fetched = self._read_one(known.want, max_bytes)
            except CORE_REFUSALS:
                answer()
                return
            if fetched.records is None:
                return
            size = fetched.records.size
            fetched.records.release()
            total_bytes += size - known.size
            known.size = size
            if total_bytes >= min_bytes:
                answer()

        def answer() -> None:
            results, _, _ = self._read(wanted, max_bytes)
            if not waiting.finish(results):
                _release(results)

        watchers = [
            (self._partitions.get(topic, number), partial(look, known))
            for (topic, number), known in watched.items()
        ]

        def leave(_: object) -> None:
            self._waiting_entries -= len(wanted)
            for partition, watcher in watchers:
                partition.watchers.pop(watcher, None)

        waiting: Waiting[list[Fetched]] = self._waiting.enter(max_wait_ms, on_due=answer)
        self._waiting_entries += len(wanted)
        for partition, watcher in watchers:
            partition.watchers[watcher] = None
        waiting.future.add_done_callback(leave)
        return waiting.future


def _release(results: Sequence[Fetched]) -> None:
    for fetched in results:
        if fetched.records is not None:
            fetched.records.release()


def _refuse_epoch(want: FetchFrom, partition: Partition) -> None:
    if want.leader_epoch < partition.leader_epoch:
        code, word = ErrorCode.FENCED_LEADER_EPOCH, "older"
    else:
        code, word = ErrorCode.UNKNOWN_LEADER_EPOCH, "newer"
    raise Refused(
        code,
        f"Leader epoch {want.leader_epoch} is {word} than the broker's {partition.leader_epoch} "
        f"for {want.topic}-{want.partition}; refresh the metadata",
    )
