"""The records of one partition, for a dialect that shows them: read from an offset, and followed.

Owns what may be read, and the waiting for more. Refuses to know how records are shown, and to look
into batches: `batch_lookups` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.loop.completion import Completion
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.services.client_throttle import ClientThrottle
from millrace_server.services.request_context import RequestContext


class RecordService:
    """Finds the partitions whose records are shown."""

    def __init__(self, partitions: PartitionTable, throttle: ClientThrottle) -> None:
        self._partitions = partitions
        self._throttle = throttle

    def open(self, context: RequestContext, topic: str, number: int) -> PartitionRecords:
        """The records of a partition. Raises `ApiError`."""
        context.check_topic(Operation.READ, topic)
        return PartitionRecords(context, self._partitions.get(topic, number), self._throttle)


class PartitionRecords:
    """What consumers may read of one partition."""

    __slots__ = ("_context", "_partition", "_throttle")

    def __init__(
        self, context: RequestContext, partition: Partition, throttle: ClientThrottle
    ) -> None:
        self._context = context
        self._partition = partition
        self._throttle = throttle

    @property
    def high_watermark(self) -> int:
        """The first offset that cannot be read yet."""
        return self._partition.high_watermark

    def check_readable(self, offset: int) -> None:
        """Raises `OffsetOutOfRange` unless `offset` can be read, now or later."""
        self._partition.check_readable(offset)

    def check_still_readable(self) -> None:
        """Raises `ApiError` when the topic was deleted, or the client has lost the right."""
        self._context.check_topic(Operation.READ, self._partition.topic)
        if self._partition.is_abandoned:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic {self._partition.topic!r} was deleted",
            )

    def read(self, offset: int, *, max_bytes: int) -> bytes:
        """The batches from the one that holds `offset` on; none at the high watermark."""
        found = self._partition.read(offset, max_bytes=max_bytes)
        if found.slice is None:
            return b""
        try:
            return found.slice.read()
        finally:
            found.slice.release()

    def count_sent(self, size_bytes: int) -> int:
        """Counts what the client gets; how long it waits then for more, in milliseconds."""
        self._throttle.count_fetched(self._context, size_bytes)
        return self._throttle.throttle_time_ms(self._context)

    @contextmanager
    def watch(self) -> Iterator[HighWatermarkWatch]:
        """Watches the high watermark as long as the context is open."""
        watch = HighWatermarkWatch()
        self._partition.watchers.add(watch)
        try:
            yield watch
        finally:
            self._partition.watchers.remove(watch)


class HighWatermarkWatch:
    """Whether the high watermark has moved since the last look, or the topic is gone."""

    __slots__ = ("_has_moved", "_waiting")

    def __init__(self) -> None:
        self._has_moved = False
        self._waiting: Completion[None] | None = None

    async def moved(self) -> None:
        """Returns when it has."""
        if not self._has_moved:
            self._waiting = Completion()
            await self._waiting
            self._waiting = None
        self._has_moved = False

    def on_moved(self) -> None:
        """See `Watcher`."""
        self._has_moved = True
        if self._waiting is not None:
            self._waiting.complete(None)
