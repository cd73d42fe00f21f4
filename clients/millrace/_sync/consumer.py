"""The consumer without an event loop; it is `millrace.sync.Consumer`.

Owns the records that were taken ahead of the caller in one crossing: positions and commits are
those of what was handed out, not of what was taken.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from millrace import consumer as _consumer
from millrace._sync.blocking_client import RECORDS_PER_CALL, BlockingClient
from millrace.assignors import Assignor
from millrace.config import ConsumerOptions, Servers
from millrace.consumer import Callback, Partition, Start
from millrace.errors import ConfigError
from millrace.events import ConsumerHealth
from millrace.groups import CommitOutcome, CommittedOffset
from millrace.metrics import ConsumerMetrics
from millrace.records import Record, RecordBatch, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    K = DefaultTypeVar("K", default=bytes)
    V = DefaultTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
P = TypeVar("P", bound=tuple[str, int])


class Consumer(BlockingClient, Generic[K, V]):
    """`millrace.Consumer` for synchronous code.

    Callbacks of a group run in the loop's thread and must not call this consumer.

    `background=False` is for a process that does nothing but read, such as a worker that takes
    whole batches: the client runs in the thread that calls it, and only meanwhile, which saves
    every batch a step to another thread and back. Between calls nothing is received, and no group
    is kept.
    """

    def __init__(
        self,
        servers: Servers = "localhost:9092",
        *topics: str,
        start: Start | None = None,
        group: str | None = None,
        group_instance_id: str | None = None,
        assignors: Sequence[str | Assignor] = ("cooperative-sticky",),
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        background: bool = True,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Opens no connection yet."""
        if group is not None and not background:
            raise ConfigError(
                "background: a group needs the thread, for its heartbeats; leave out "
                "background=False, or the group"
            )
        self._consumer: _consumer.Consumer[K, V] = _consumer.Consumer(
            servers,
            *topics,
            start=start,
            group=group,
            group_instance_id=group_instance_id,
            assignors=assignors,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **options,
        )
        super().__init__(self._consumer, background=background)
        self._ahead: deque[Record[K, V]] = deque()
        self._commits_at_exit = group is not None and options.get("auto_commit", True)

    def _left_behind(self) -> str:
        return self._consumer.left_behind()

    def __iter__(self) -> Iterator[Record[K, V]]:
        while True:
            while self._ahead:
                yield self._ahead.popleft()
            self._ahead.extend(self._run(self._consumer.getmany(RECORDS_PER_CALL)))

    def getone(self, *, timeout_ms: int | None = None) -> Record[K, V] | None:
        """The next record; None after `timeout_ms` without one."""
        found = self.getmany(1, timeout_ms=timeout_ms)
        return found[0] if found else None

    def getmany(
        self, max_records: int = 500, *, timeout_ms: int | None = None
    ) -> list[Record[K, V]]:
        """From 1 to `max_records` records; an empty list after `timeout_ms` without one."""
        if self._ahead:
            return [self._ahead.popleft() for _ in range(min(max_records, len(self._ahead)))]
        return self._run(self._consumer.getmany(max_records, timeout_ms=timeout_ms))

    def batches(self, *, timeout_ms: int | None = None) -> Iterator[RecordBatch[K, V]]:
        """The records as they came, up to a whole fetch of a partition at a time, not decoded.

        Ends after `timeout_ms` without one.
        """
        batches = self._consumer.batches()

        async def take() -> RecordBatch[K, V]:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await anext(batches)

        while True:
            self._give_back()
            try:
                batch = self._run(take())
            except TimeoutError:
                return
            yield batch
            # The fetch after the next one may be received into its room.
            del batch

    def assign(self, partitions: Iterable[Partition], *, start: Start | None = None) -> None:
        """Reads exactly these partitions from now on."""
        self._give_back()
        self._call(lambda: self._consumer.assign(partitions, start=start))

    def subscribe(self, topics: Iterable[str] | re.Pattern[str]) -> None:
        """Shares these topics with the group from now on, instead of those before."""
        self._give_back()
        self._call(lambda: self._consumer.subscribe(topics))

    def unsubscribe(self) -> None:
        """Reads nothing any more. In a group: commits what is done with, and leaves it."""
        self._give_back()
        self._call(self._consumer.unsubscribe)

    def subscription(self) -> list[str]:
        """The topics that are read, sorted."""
        return self._call(self._consumer.subscription)

    def commit(
        self, offsets: Mapping[P, int | tuple[int, str]] | None = None
    ) -> dict[TopicPartition, CommitOutcome]:
        """Commits how far the group has come, up to the record handed out last, or the offsets
        given; says of each partition what became of it.
        """
        if offsets is not None:
            return self._run(self._consumer.commit(offsets))
        ahead = self._first_ahead()

        async def commit() -> dict[TopicPartition, CommitOutcome]:
            handed_out = self._consumer.handed_out()
            handed_out.update((w, offset) for w, offset in ahead.items() if w in handed_out)
            return await self._consumer.commit(handed_out)

        return self._run(commit())

    def committed(self, *partitions: Partition) -> dict[TopicPartition, CommittedOffset | None]:
        """How far the group has come in each partition named, or in all that are read."""
        return self._run(self._consumer.committed(*partitions))

    def extend_processing(self, extra_ms: int) -> None:
        """Says that the records in hand take that much longer, from now on."""
        self._call(lambda: self._consumer.extend_processing(extra_ms))

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        return self._call(self._consumer.assignment)

    def seek(self, partition: Partition, offset: int) -> None:
        """Goes on at `offset`."""
        self._give_back()
        self._call(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Goes on at the beginning of the log, of all partitions if none is named."""
        self._give_back()
        self._call(lambda: self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: Partition) -> None:
        """Goes on at the end of the log, of all partitions if none is named."""
        self._give_back()
        self._call(lambda: self._consumer.seek_to_end(*partitions))

    def seek_to_timestamp(self, time: int | datetime, *partitions: Partition) -> None:
        """Goes on at the first record at or after `time`; of all partitions if none is named."""
        self._give_back()
        self._call(lambda: self._consumer.seek_to_timestamp(time, *partitions))

    def position(self, partition: Partition) -> int:
        """Offset of the next record that will be handed out."""
        self._give_back()
        return self._run(self._consumer.position(partition))

    def pause(self, *partitions: Partition) -> None:
        """Hands out nothing of these partitions until `resume`; all if none is named."""
        self._give_back()
        self._call(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: Partition) -> None:
        """Undoes `pause`; for all partitions if none is named."""
        self._call(lambda: self._consumer.resume(*partitions))

    def beginning_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """First offset in the log, of each partition named, or of all that are read."""
        return self._run(self._consumer.beginning_offsets(*partitions))

    def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """Offset of the next record to be written, exclusive end of what can be read."""
        return self._run(self._consumer.end_offsets(*partitions))

    def offsets_for_times(
        self, times: Mapping[Partition, int | datetime]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """`(offset, timestamp_ms)` of the first record at or after each time; None for none."""
        return self._run(self._consumer.offsets_for_times(times))

    def lag(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """How many offsets each partition's position is behind the end; all if none is named."""
        self._give_back()
        return self._run(self._consumer.lag(*partitions))

    def health(self) -> ConsumerHealth:
        """The state of the consumer at this moment."""
        return self._call(self._consumer.health)

    def metrics(self) -> ConsumerMetrics:
        """The counters since the start, and the gauges now; also when it is closed.

        `lag` counts the records that were taken ahead of the caller, up to 500, as handed out.
        """
        return self._consumer.metrics()

    def _give_back(self) -> None:
        """Undoes the crossing's reading ahead: positions are those of what was handed out."""
        if not self._ahead:
            return
        first = self._first_ahead()
        self._ahead.clear()

        def seek() -> None:
            held = self._consumer.assignment()
            for where, offset in first.items():
                # What was given up meanwhile is read by another member.
                if where in held:
                    self._consumer.seek(where, offset)

        self._call(seek)

    def _first_ahead(self) -> dict[TopicPartition, int]:
        """Offset of the first record that was not handed out, of each partition that has one."""
        return {record.topic_partition: record.offset for record in reversed(self._ahead)}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._commits_at_exit:
                self.commit()
        finally:
            self.close()
