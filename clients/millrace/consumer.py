"""The consumer: reads the records of partitions that are assigned by hand or by a group.

Owns the public calls and the waits. Reading ahead is `fetcher`'s, positions are `positions`' and
the calls about them `seek`'s, the records at hand `fetch_buffer`'s, and being a member
`group_member`'s.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, Unpack

from millrace._background_tasks import BackgroundTasks
from millrace._clock import monotonic_ms
from millrace._cluster.cluster import Cluster
from millrace._cluster.security import security
from millrace._consumer.consumer_metrics import consumer_metrics
from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.fetch_buffer import FetchBuffer
from millrace._consumer.fetcher import Fetcher
from millrace._consumer.group_consumer import GroupConsumer, check_topics
from millrace._consumer.group_member import Group
from millrace._consumer.group_offsets import GroupOffsets
from millrace._consumer.hand_over import Callback, Callbacks
from millrace._consumer.positions import Positions
from millrace._consumer.seek import Partition, Start, timestamp_of
from millrace._group.commits import Commits, NoMember
from millrace._group.member_identity import MemberConfig
from millrace._owner import Owner, warn_if_open
from millrace.assignors import Assignor, chosen
from millrace.config import ConsumerConfig, ConsumerOptions, Servers, configure, parse_servers
from millrace.errors import (
    ClientFailed,
    Closed,
    ConfigError,
    MillraceError,
    NoPartitions,
    again,
)
from millrace.events import ConsumerHealth, Event, EventFeed, EventKind, State
from millrace.metrics import ConsumerMetrics
from millrace.records import Record, RecordBatch, TopicPartition
from millrace_protocol.messages.list_offsets import EARLIEST

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

__all__ = ["Callback", "Consumer", "Partition", "Start"]


class Consumer(GroupConsumer, Generic[K, V]):
    """Reads partitions, in order within each, reading ahead of the caller.

        async with Consumer("localhost:9092", "clicks") as consumer:
            async for record in consumer:
                ...

    Reads all partitions of the topics given, also those added later, or those `assign` names, from
    `start` on: "earliest", "latest", a time in ms or a datetime. Without it `auto_offset_reset`
    decides, and where that is not set either, it reads from the beginning.

    With a `group` it shares the topics with the group's other members, and resumes from the group's
    committed offsets. It commits by itself, unless `auto_commit` is off: a record counts as
    processed when the caller asks for more, or when `async with` ends without an exception. The
    callbacks, plain or async, get lists of partitions: `on_assigned` before the first record of
    them, `on_revoked` before another member reads them, `on_lost` when another member may read them
    already. Without `on_lost`, `on_revoked` is called instead.

    A partition that cannot be read does not delay the others: it is tried again in the background,
    and `health().waiting` and the events say why it waits.

    Records may be taken with `async for`, `getone`, `getmany` or `batches`, in any mixture, by any
    number of tasks; each record is handed out once. Settings are those of
    `config.ConsumerConfig`. Made anywhere, started inside a running loop by `start` or
    `async with`. NEW -> RUNNING -> CLOSED, or FAILED if its task dies.
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
        rng: random.Random | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Opens no connection yet."""
        self.owner = Owner("consumer")
        check_topics(topics)
        if group is None and group_instance_id is not None:
            raise ConfigError("group_instance_id: names a member of a group, and there is no group")
        if group == "" or group_instance_id == "":
            raise ConfigError("group, group_instance_id: a name is not empty; leave it out")
        self._config: ConsumerConfig = configure(ConsumerConfig, options)
        self._topics = topics
        self._start_at = timestamp_of(self._config.start if start is None else start)
        self._feed = EventFeed("consumer")
        rng = rng or random.Random()
        self._cluster = Cluster(
            parse_servers(servers),
            self._config,
            feed=self._feed,
            receive_bytes_max=self._config.fetch_max_bytes,
            # Answers of one partition that are that large are meant to come one after the other.
            kept_bytes_max=self._config.max_partition_bytes,
            **security(servers, self._config),
            rng=rng,
        )
        self._counters = ConsumerCounters()
        self._positions = Positions(self._config, rng=rng, counters=self._counters)
        self._fetch_buffer = FetchBuffer(
            self._positions,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        self._fetcher = Fetcher(
            self._cluster, self._positions, self._config, counters=self._counters, feed=self._feed
        )
        self._state = State.NEW
        self._cause: BaseException | None = None
        self._tasks: BackgroundTasks | None = None
        self._group: Group | None = None
        self._group_offsets: GroupOffsets | None = None
        self._commits: Commits | None = None
        self._shares = False
        if group is not None:
            member = MemberConfig.of(self._config, group, group_instance_id, chosen(assignors))
            self._join_in(member, Callbacks(on_assigned, on_revoked, on_lost))

    # Life

    async def start(self) -> None:
        """Connects and learns of the topics.

        Raises `ConnectionFailed` when none of the servers answers, `UnknownTopicOrPartition` for
        a topic that is not there, `NotAuthorized` for one that the client may not see.
        """
        if self._state is not State.NEW:
            raise Closed(f"start: this consumer is {self._state}; make a new one")
        try:
            await self._cluster.start()
            if self._topics:
                await self._cluster.await_topics(self._topics)
        except BaseException:
            await self._cluster.close()
            raise
        if self._group is None:
            for topic in self._topics:
                self._positions.add(self._partitions_of(topic), self._start_at)
        self._state = State.RUNNING
        self.owner.take()
        self._tasks = tasks = BackgroundTasks(self._on_task_failed)
        self._fetcher.start(tasks, on_metadata=self._read_new_partitions)
        if self._group is not None and self._group_offsets is not None:
            self._group_offsets.commits.member = self._group
            self._group_offsets.start(tasks)
            self._group.start(tasks)

    async def close(self) -> None:
        """Disconnects; callers that wait for records get `Closed`.

        In a group it first commits what is processed and leaves the group, within
        `CLOSE_TIMEOUT_MS`. Records that no later call for more followed do not count as processed:
        `commit` them, or end `async with`.
        """
        await self._close(all_is_done=False)

    async def _close(self, *, all_is_done: bool) -> None:
        if self._state in (State.CLOSING, State.CLOSED):
            return
        self.owner.check()
        self._check_outside("close")
        self.owner.release()
        try:
            if self._state is State.RUNNING:
                self._state = State.CLOSING
                self._fetcher.data.set()
                await self._leave(all_is_done=all_is_done)
        finally:
            if self._state is not State.FAILED:
                self._state = State.CLOSED
            self._fetcher.data.set()
            if self._tasks is not None:
                await self._tasks.end()
            if self._group_offsets is not None:
                # The group refers to its offsets, and they to their commits.
                self._group_offsets.commits.member = NoMember()
            await self._cluster.close()
            self._feed.emit(EventKind.CLOSED, "closed")
            self._feed.end()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(all_is_done=kind is None)

    # Records

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Record[K, V]]:
        if self._group is not None:
            self._group.asked(one_by_one=True)
            self._group.handed()
        while True:
            # Breaking out of the loop loses nothing: the iterator is not this generator's.
            for record in self._fetch_buffer.records:
                yield record
            await self._next_chunk(one_by_one=True)

    async def getone(self) -> Record[K, V]:
        """The next record. Cancelling it loses none."""
        if self._group is not None:
            self._group.asked()
        while True:
            for record in self._fetch_buffer.records:
                if self._group is not None:
                    self._group.handed()
                return record
            await self._next_chunk()

    async def getmany(
        self, max_records: int = 500, *, timeout_ms: int | None = None
    ) -> list[Record[K, V]]:
        """From 1 to `max_records` records that are buffered; waits for the first.

        After `timeout_ms` without one, an empty list. Cancelling it loses none.
        """
        if max_records < 1:
            raise ValueError(f"max_records: must be 1 or more, not {max_records}")
        self._check_taking()
        # Others run before anything is taken: a cancelled call must not hold records.
        await asyncio.sleep(0)
        if self._group is not None:
            self._group.asked()
        found = self._at_hand(max_records)
        if not found:
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    found.append(await self.getone())
            except TimeoutError:
                return []
            found += self._at_hand(max_records - 1)
        self._fetcher.wake()
        if self._group is not None:
            self._group.handed()
        return found

    async def batches(self) -> AsyncIterator[RecordBatch[K, V]]:
        """The records as they came: up to a whole fetch of a partition at a time, not decoded.

        The position moves past a batch when it is handed out.
        """
        while True:
            self._check_taking()
            if self._group is not None:
                self._group.asked()
            batch = self._fetch_buffer.next_batch(monotonic_ms())
            self._fetcher.wake()
            if batch is None:
                await self._wait_for_data()
            else:
                if self._group is not None:
                    self._group.handed()
                yield batch
                del batch
                await asyncio.sleep(0)

    def _at_hand(self, max_records: int) -> list[Record[K, V]]:
        """Up to `max_records` records without waiting. Raises only if there is none before."""
        found: list[Record[K, V]] = []
        while len(found) < max_records:
            found += islice(self._fetch_buffer.records, max_records - len(found))
            try:
                if len(found) < max_records and not self._fetch_buffer.advance(monotonic_ms()):
                    break
            except MillraceError:
                # What was found comes first; the position has not moved, so it is met again.
                if not found:
                    raise
                break
        return found

    async def _next_chunk(self, *, one_by_one: bool = False) -> None:
        """Returns with records at hand. Lets other tasks run, so that reading starves none."""
        self._check_taking()
        if self._group is not None:
            self._group.asked(one_by_one=one_by_one)
        await asyncio.sleep(0)
        while not self._fetch_buffer.left:
            self._check_taking()
            try:
                if self._fetch_buffer.advance(monotonic_ms()):
                    break
            finally:
                self._fetcher.wake()
            await self._wait_for_data()
        if one_by_one and self._group is not None:
            self._group.handed()

    async def _wait_for_data(self) -> None:
        data = self._fetcher.data
        if not self._fetch_buffer.may_advance:
            data.clear()
            await data.wait()
        else:
            await asyncio.sleep(0)

    # Observing

    @property
    def state(self) -> State:
        """Where the consumer is in its life."""
        return self._state

    def health(self) -> ConsumerHealth:
        """The state of the consumer at this moment; costs little."""
        last = self._fetcher.last_fetch_ms
        group = None if self._group is None else self._group.health()
        return ConsumerHealth(
            state=self._state,
            last_error=self._fetcher.last_error
            or (None if group is None else group.callback_error),
            assigned=len(self._positions),
            buffered_bytes=self._positions.buffered_bytes,
            in_flight_requests=self._positions.in_flight_requests,
            last_fetch_ms=None if last is None else monotonic_ms() - last,
            group=group,
            waiting=self._positions.waiting(),
        )

    def metrics(self) -> ConsumerMetrics:
        """The counters since the start, and the gauges now. Costs little, in any thread.

        Another thread reads the numbers one after the other while the consumer goes on, so two of
        them may be of different moments. Each counter only grows.
        """
        return consumer_metrics(
            self._config.client_id,
            self._counters,
            self._positions,
            self._fetch_buffer,
            is_running=self._state is State.RUNNING,
        )

    def events(self) -> AsyncIterator[Event]:
        """The events from now on, until the consumer is closed."""
        return self._feed.listen()

    def __del__(self) -> None:
        warn_if_open(self, self.left_behind())

    def left_behind(self) -> str:
        """What a consumer that is not closed leaves behind, for the report of it."""
        if getattr(self, "_group", None) is None:
            return ""
        timeout_ms = self._config.session_timeout_ms
        return (
            ": what it processed last is not committed, and its group waits "
            f"session_timeout_ms={timeout_ms} for it"
        )

    # Inside

    def _check(self) -> None:
        """Raises unless there is something that can be read."""
        self._check_alive()
        if self._group is not None and self._group.error is not None:
            raise again(self._group.error)
        if not len(self._positions) and not self._shares:
            raise NoPartitions("nothing to read: name topics, or call assign()")

    def _check_taking(self) -> None:
        """Raises unless the caller may wait for records."""
        self._check()
        if self._group is not None and self._group.denied is not None:
            raise again(self._group.denied)
        self._check_outside("taking records")

    def _check_alive(self) -> None:
        if self._state is State.NEW:
            raise Closed("the consumer was not started: use `async with`, or await start()")
        if self._state is State.FAILED:
            raise ClientFailed(
                f"the consumer's task died: {self._cause!r}; make a new consumer"
            ) from self._cause
        self._check_open()
        self.owner.check()

    def _check_open(self) -> None:
        if self._state in (State.CLOSING, State.CLOSED):
            raise Closed("the consumer is closed")

    def _partitions_of(self, topic: str) -> list[TopicPartition]:
        count = self._cluster.metadata.partition_count(topic) or 0
        return [TopicPartition(topic, partition) for partition in range(count)]

    def _read_new_partitions(self) -> None:
        """Reads partitions that were added to the topics, from their beginning."""
        if self._group is not None:
            self._group.on_metadata()
            return
        for topic in self._topics:
            new = [w for w in self._partitions_of(topic) if w not in self._positions]
            if new:
                self._positions.add(new, EARLIEST)
                self._feed.emit(
                    EventKind.PARTITIONS_CHANGED, f"reads {', '.join(map(str, new))} too"
                )

    def _on_task_failed(self, cause: BaseException | None) -> None:
        if self._state in (State.CLOSED, State.FAILED):
            return
        self._cause = cause
        if cause is not None:
            self.owner.release()
        self._state = State.FAILED
        if self._group is not None:
            self._group.abandon_leave()
        self._feed.emit(EventKind.FAILED, f"the consumer's task died: {cause!r}")
        self._fetcher.data.set()
