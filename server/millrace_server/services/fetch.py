"""Fetch: slices of the log, at once or as soon as there is enough (wire_spec.md W-4.4).

A fetch that finds too little is parked: an object in the watch lists of its partitions, without a
task, whose deadline is an entry in a heap that all parked requests share. It knows how much each
partition has for it by counting, and reads once, when it is to be answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import FileSlice
from millrace_server.loop.completion import Completion
from millrace_server.loop.fair_scheduler import FairScheduler, chunks
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.purgatory import Purgatory
from millrace_server.principal_shares import ShareRule, Shares
from millrace_server.services.client_throttle import ClientThrottle
from millrace_server.services.read_replicas import ReadReplicas
from millrace_server.services.request_context import RequestContext

PARKED_ENTRIES_MAX = 50_000
"""Entries of all parked fetches together, but for those that may always wait: each takes some
500 bytes of memory, and a fetch some 3,000."""
FEW_ENTRIES = 10
"""The first fetch of a client may always wait, when it names so few partitions."""
ENTRIES_PER_FETCH = 6
"""What a parked fetch costs beside its entries, counted in entries."""
CHUNK_ENTRIES = 12
"""Read in one chunk, some 100 us on a busy machine."""


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
    """What one partition holds from the offset asked for. The caller releases `records`."""

    topic: str
    partition: int
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    preferred_replica: int = -1
    """The replica in the client's rack to read from next; -1: this broker, or the leader."""
    records: FileSlice | None = None
    readable_bytes: int = 0
    """`HighWatermark.readable_bytes` at the moment of the read."""
    is_cut: bool = False
    """Whether more is readable behind the records: the read was bounded, or a segment ends."""

    @property
    def size(self) -> int:
        """Bytes of records."""
        return 0 if self.records is None else self.records.size


class FetchService:
    """Reads partitions, and parks fetches that find too little."""

    def __init__(
        self,
        partitions: PartitionTable,
        replicas: ReadReplicas,
        scheduler: FairScheduler,
        purgatory: Purgatory,
        throttle: ClientThrottle,
        shares: ShareRule,
    ) -> None:
        self._partitions = partitions
        self._replicas = replicas
        self._scheduler = scheduler
        self._purgatory = purgatory
        self._throttle = throttle
        self._parked_entries = 0
        self._parked_shares = Shares(shares, PARKED_ENTRIES_MAX)

    async def fetch(
        self,
        context: RequestContext,
        wanted: Sequence[FetchFrom],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        rack: str | None = None,
        is_bounded: bool = False,
    ) -> list[Fetched]:
        """Reads each partition in turn until `max_bytes` are found; results in the same order.

        Returns at once when there are `min_bytes`, when a partition has an error, when
        `max_wait_ms` is 0, or when too many fetches are parked, of all or of the principal; else
        later, with what there is by then. The only parked fetch of a connection may always wait,
        if it names few partitions.
        A partition gets one batch whole, whatever the bounds are; with `is_bounded` only the first
        one that has records does (Kafka's rule).
        A client that says its rack may read from a follower that is in sync. One with a quota gets
        no more than it may take in a second, or one batch.
        """
        has_quotas = bool(self._throttle.cache.image.quotas.entities)
        if has_quotas:
            max_bytes = self._throttle.fetch_bytes_max(context, max_bytes)
        # A response never holds more than `max_bytes`, so no fetch waits for more.
        min_bytes = min(min_bytes, max_bytes)
        results = await self._read(context, wanted, max_bytes, rack, is_bounded)
        if (
            max_wait_ms <= 0
            or _is_enough(results, min_bytes)
            or not self._may_park(context, len(wanted))
        ):
            if has_quotas:
                self._throttle.count_fetched(context, sum(each.size for each in results))
            return results
        found = [(each.size, each.readable_bytes) for each in results]
        release(results)
        await self._park(
            context, wanted, found, rack=rack, max_wait_ms=max_wait_ms, min_bytes=min_bytes
        )
        results = await self._read(context, wanted, max_bytes, rack, is_bounded)
        if has_quotas:
            self._throttle.count_fetched(context, sum(each.size for each in results))
        return results

    async def _park(
        self,
        context: RequestContext,
        wanted: Sequence[FetchFrom],
        found: Sequence[tuple[int, int]],
        *,
        rack: str | None,
        max_wait_ms: int,
        min_bytes: int,
    ) -> None:
        """Returns when the partitions have `min_bytes`, one is gone, or the time is over.

        `found` is the size that each partition had, and its `readable_bytes` then.
        """
        parked = _ParkedFetch(min_bytes)
        entries = len(wanted) + ENTRIES_PER_FETCH
        self._parked_entries += entries
        self._parked_shares.add(context.principal, entries)
        context.parked_fetches += 1
        # A client whose session has ended gets no record that comes later.
        session_end_ms = None if context.sasl is None else context.sasl.session_end_ms
        self._purgatory.add(parked, max_wait_ms, latest_ms=session_end_ms)
        try:
            for number, (want, (size, readable_bytes)) in enumerate(
                zip(wanted, found, strict=True), 1
            ):
                try:
                    source = self._partitions if rack is None else self._replicas
                    partition = source.get(want.topic, want.partition)
                except ApiError:
                    return
                parked.watch(want, partition, size, readable_bytes)
                if not number % CHUNK_ENTRIES and number < len(wanted):
                    await self._scheduler.yield_()
            await parked.completion
        finally:
            self._parked_entries -= entries
            self._parked_shares.add(context.principal, -entries)
            context.parked_fetches -= 1
            self._purgatory.remove(parked)
            parked.close()

    def _may_park(self, context: RequestContext, entries: int) -> bool:
        is_first = not context.parked_fetches
        return (is_first and entries <= FEW_ENTRIES) or (
            self._parked_entries + entries <= PARKED_ENTRIES_MAX
            and self._parked_shares.has_room(context.principal, entries)
        )

    async def _read(
        self,
        context: RequestContext,
        wanted: Sequence[FetchFrom],
        max_bytes: int,
        rack: str | None,
        is_bounded: bool,
    ) -> list[Fetched]:
        results: list[Fetched] = []
        may_exceed = True
        try:
            for chunk in (wanted,) if len(wanted) <= CHUNK_ENTRIES else _chunks(wanted):
                if results:
                    await self._scheduler.yield_()
                for want in chunk:
                    fetched = self._read_one(context, want, max_bytes, rack, may_exceed)
                    results.append(fetched)
                    if fetched.records is not None:
                        max_bytes -= fetched.records.size
                        may_exceed = not is_bounded
        except BaseException:
            release(results)
            raise
        return results

    def _read_one(
        self,
        context: RequestContext,
        want: FetchFrom,
        left: int,
        rack: str | None,
        may_exceed: bool,
    ) -> Fetched:
        try:
            if context.authorizer is not None:
                context.check_topic(Operation.READ, want.topic)
            source = self._partitions if rack is None else self._replicas
            partition = source.get(want.topic, want.partition)
        except ApiError as error:
            return Fetched(want.topic, want.partition, error.code, error.message)
        fetched = Fetched(
            want.topic, want.partition, readable_bytes=partition.committed.readable_bytes
        )
        try:
            leadership = partition.leadership
            if want.leader_epoch not in (-1, leadership.epoch):
                leadership.check_epoch(want.leader_epoch, f"{want.topic}-{want.partition}")
            # A new leader may not know yet that what a consumer has read is committed (KIP-207).
            is_behind = partition.committed.offset < want.offset <= partition.end_offset
            if left > 0 and not (is_behind and partition.replica is not None):
                limit = min(want.max_bytes, left)
                found = partition.read(want.offset, max_bytes=limit)
                if may_exceed or found.slice is None or found.slice.size <= limit:
                    fetched.records = found.slice
                    fetched.is_cut = found.next_offset < partition.committed.offset
                else:
                    found.slice.release()
                    fetched.is_cut = True
            elif left <= 0 and not is_behind:
                partition.check_readable(want.offset)
        except CORE_ERRORS as error:
            refused = as_api_error(error)
            fetched.code, fetched.message = refused.code, refused.message
            if refused.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                return fetched
        if rack is not None:
            fetched.preferred_replica = self._replicas.preferred(partition, rack)
        fetched.high_watermark = partition.committed.offset
        fetched.log_start_offset = partition.log.start_offset
        return fetched


class _ParkedFetch:
    """What one parked fetch waits for.

    A partition that is named twice counts once, from the lower offset.
    """

    __slots__ = ("_min_bytes", "_size", "_watched", "completion")

    def __init__(self, min_bytes: int) -> None:
        self._min_bytes = min_bytes
        self._size = 0
        self._watched: dict[tuple[str, int], _WatchedPartition] = {}
        self.completion: Completion[None] = Completion()

    def watch(self, want: FetchFrom, partition: Partition, size: int, readable_bytes: int) -> None:
        """Watches one more partition, of which `size` bytes were found at `readable_bytes`."""
        key = (want.topic, want.partition)
        known = self._watched.get(key)
        if known is None:
            known = self._watched[key] = _WatchedPartition(self, partition)
            partition.watchers.add(known)
        elif want.offset >= known.offset:
            return
        known.note(want, size, readable_bytes)

    def grew(self, more_bytes: int) -> None:
        """A watched partition has `more_bytes` more for the fetch."""
        self._size += more_bytes
        if self._size >= self._min_bytes:
            self.completion.complete(None)

    def expire(self) -> None:
        """See `Parked`."""
        self.completion.complete(None)

    def close(self) -> None:
        """Watches nothing any more."""
        for watched in self._watched.values():
            watched.partition.watchers.remove(watched)
        self._watched.clear()


class _WatchedPartition:
    """One partition of a parked fetch, and how much it holds for the fetch."""

    __slots__ = (
        "_fetch",
        "_max_bytes",
        "_readable_before",
        "_size",
        "_size_before",
        "offset",
        "partition",
    )

    def __init__(self, fetch: _ParkedFetch, partition: Partition) -> None:
        self._fetch = fetch
        self.partition = partition
        self.offset = 0
        self._max_bytes = self._size = self._size_before = self._readable_before = 0

    def note(self, want: FetchFrom, size: int, readable_bytes: int) -> None:
        """The fetch reads from `want.offset`, where `size` bytes were found."""
        self.offset = want.offset
        self._max_bytes = want.max_bytes
        self._size_before = size
        self._readable_before = readable_bytes
        self.on_moved()

    def on_moved(self) -> None:
        """See `Watcher`."""
        partition = self.partition
        if partition.is_abandoned or self.offset < partition.log.start_offset:
            self._fetch.expire()
            return
        grown = partition.committed.readable_bytes - self._readable_before
        size = self._size_before
        if grown:
            size = min(max(self._max_bytes, size), size + grown)
        more, self._size = size - self._size, size
        self._fetch.grew(more)


def _is_enough(results: Sequence[Fetched], min_bytes: int) -> bool:
    """Whether results are to be returned at once: there are `min_bytes`, or all that a read may
    give, or an error."""
    size = 0
    for found in results:
        if found.is_cut or found.code:
            return True
        if found.records is not None:
            size += found.records.size
    return size >= min_bytes


def release(results: Sequence[Fetched]) -> None:
    """Releases the slices of results that are not sent."""
    for fetched in results:
        if fetched.records is not None:
            fetched.records.release()


def _chunks(wanted: Sequence[FetchFrom]) -> Iterator[Sequence[FetchFrom]]:
    return chunks(wanted, CHUNK_ENTRIES, lambda want: want.topic)
