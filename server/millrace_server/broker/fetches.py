"""Fetch: slices of the log, at once or as soon as there is something (wire_spec.md W-4.4).

A fetch that finds too little waits as an object in the watch lists of its partitions; it has no
task, and its deadline is an entry in a heap that all waiting requests share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_server.broker.partition import Partition
from millrace_server.broker.partitions import Partitions
from millrace_server.broker.refusals import CORE_REFUSALS, as_refused
from millrace_server.broker.waiting import Waiting, WaitingRoom
from millrace_server.host import FileSlice
from millrace_server.refusal import Refused


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


class Fetches:
    """The fetch service."""

    def __init__(self, partitions: Partitions, waiting: WaitingRoom) -> None:
        self._partitions = partitions
        self._waiting = waiting

    def fetch(
        self, wanted: Sequence[FetchFrom], *, max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> list[Fetched] | asyncio.Future[list[Fetched]]:
        """Reads each partition in turn until `max_bytes` are found; results in the same order.

        Answers at once when there are `min_bytes`, when a partition has an error, or when
        `max_wait_ms` is 0; else later, with what there is by then.
        """
        # More than `max_bytes` never comes, so nobody waits for it.
        min_bytes = min(min_bytes, max_bytes)
        results, size, refused = self._read(wanted, max_bytes)
        if refused or size >= min_bytes or max_wait_ms <= 0:
            return results
        _release(results)
        return self._wait(wanted, max_wait_ms, min_bytes, max_bytes)

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
        self, wanted: Sequence[FetchFrom], max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> asyncio.Future[list[Fetched]]:
        watched = {
            id(p): p for p in (self._partitions.get(w.topic, w.partition) for w in wanted)
        }.values()

        def look_again() -> None:
            results, size, refused = self._read(wanted, max_bytes)
            if not (refused or size >= min_bytes) or not waiting.finish(results):
                _release(results)

        def due() -> None:
            results, _, _ = self._read(wanted, max_bytes)
            if not waiting.finish(results):
                _release(results)

        def leave(_: object) -> None:
            for partition in watched:
                partition.watchers.pop(look_again, None)

        waiting: Waiting[list[Fetched]] = self._waiting.enter(max_wait_ms, on_due=due)
        for partition in watched:
            partition.watchers[look_again] = None
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
