"""The consumer: records out of partitions it was told to read.

Owns the public calls and the waits. Reading ahead is `_fetcher`'s, positions are `_positions`',
and the records at hand `_reading`'s.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, Self, Unpack

from millrace._clock import monotonic_ms
from millrace._cluster import Cluster
from millrace._fetcher import Fetcher
from millrace._offsets import list_offsets
from millrace._positions import PartitionState, Positions
from millrace._reading import Reading
from millrace.config import ConsumerConfig, ConsumerOptions, Servers, configure, parse_servers
from millrace.errors import (
    ClientFailed,
    Closed,
    ConfigError,
    MillraceError,
    NoPartitions,
)
from millrace.events import ConsumerHealth, Event, EventFeed, EventKind, State
from millrace.records import Record, RecordBatch, TopicPartition
from millrace_protocol.messages.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Start = Literal["earliest", "latest"] | int | datetime
"""Where to begin: an end of the log, or the first record at or after a time (ms, or aware)."""
Partition = TopicPartition | tuple[str, int]


class Consumer(Generic[K, V]):
    """Reads partitions, in order within each, reading ahead of the caller.

        async with Consumer("localhost:9092", "clicks") as consumer:
            async for record in consumer:
                ...

    Reads all partitions of the topics given, also those added later, or those `assign` names.
    Records may be taken with `async for`, `getone`, `getmany` or `batches`, in any mixture, by any
    number of tasks; each record is handed out once. Settings are those of
    `config.ConsumerConfig`. Made anywhere, started inside a running loop by `start` or
    `async with`. NEW -> RUNNING -> CLOSED, or FAILED if its task dies.
    """

    def __init__(
        self,
        servers: Servers = "localhost:9092",
        *topics: str,
        start: Start = "earliest",
        group: None = None,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        rng: random.Random | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Connects to nobody yet."""
        if group is not None:
            raise ConfigError(
                "group: this consumer does not join groups; leave it out, and name topics or "
                "assign partitions"
            )
        for topic in topics:
            if not isinstance(topic, str) or not topic:
                raise ConfigError(f"topics: {topic!r} is not a topic name")
        self._config: ConsumerConfig = configure(ConsumerConfig, options)
        self._topics = topics
        self._start_at = _timestamp_of(start)
        self._feed = EventFeed("consumer")
        rng = rng or random.Random()
        self._cluster = Cluster(
            parse_servers(servers),
            self._config,
            feed=self._feed,
            receive_bytes_max=self._config.fetch_max_bytes,
            rng=rng,
        )
        self._positions = Positions(self._config, rng=rng)
        self._reading = Reading(
            self._positions,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        self._fetcher = Fetcher(
            self._cluster,
            self._positions,
            self._config,
            feed=self._feed,
            on_metadata=self._read_new_partitions,
        )
        self._state = State.NEW
        self._cause: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    # Life

    async def start(self) -> None:
        """Connects and learns of the topics.

        Raises `ConnectionFailed` when none of the servers answers, `UnknownTopicOrPartition` for
        a topic that is not there.
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
        for topic in self._topics:
            self._positions.add(self._partitions_of(topic), self._start_at)
        self._state = State.RUNNING
        self._task = asyncio.create_task(self._fetcher.run(), name="millrace-consumer")
        self._task.add_done_callback(self._on_task_done)

    async def close(self) -> None:
        """Disconnects; whoever waits for records gets `Closed`."""
        if self._state is State.CLOSED:
            return
        if self._state is not State.FAILED:
            self._state = State.CLOSED
        self._fetcher.data.set()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
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
        await self.close()

    # Records

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Record[K, V]]:
        while True:
            # Breaking out of the loop loses nothing: the iterator is not this generator's.
            for record in self._reading.records:
                yield record
            await self._next_chunk()

    async def getone(self) -> Record[K, V]:
        """The next record. Cancelling it loses none."""
        while True:
            for record in self._reading.records:
                return record
            await self._next_chunk()

    async def getmany(
        self, max_records: int = 500, *, timeout_ms: int | None = None
    ) -> list[Record[K, V]]:
        """What is at hand, from 1 to `max_records` records; waits for the first.

        After `timeout_ms` without one, an empty list. Cancelling it loses none.
        """
        if max_records < 1:
            raise ValueError(f"max_records: must be 1 or more, not {max_records}")
        self._check()
        # Others run before anything is taken: a cancelled call must not hold records.
        await asyncio.sleep(0)
        found = self._at_hand(max_records)
        if not found:
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    found.append(await self.getone())
            except TimeoutError:
                return []
            found += self._at_hand(max_records - 1)
        self._fetcher.wake()
        return found

    async def batches(self) -> AsyncIterator[RecordBatch[K, V]]:
        """The records as they came: up to a whole fetch of a partition at a time, not decoded.

        The position moves past a batch when it is handed out.
        """
        while True:
            self._check()
            batch = self._reading.next_batch(monotonic_ms())
            self._fetcher.wake()
            if batch is None:
                await self._wait_for_data()
            else:
                yield batch
                await asyncio.sleep(0)

    def _at_hand(self, max_records: int) -> list[Record[K, V]]:
        """Up to `max_records` records without waiting. Raises only if there is none before."""
        found: list[Record[K, V]] = []
        while len(found) < max_records:
            found += islice(self._reading.records, max_records - len(found))
            try:
                if len(found) < max_records and not self._reading.advance(monotonic_ms()):
                    break
            except MillraceError:
                # What was found comes first; the position has not moved, so it is met again.
                if not found:
                    raise
                break
        return found

    async def _next_chunk(self) -> None:
        """Returns with records at hand. Lets other tasks run, so that reading starves nobody."""
        self._check()
        await asyncio.sleep(0)
        while not self._reading.left:
            self._check()
            try:
                if self._reading.advance(monotonic_ms()):
                    break
            finally:
                self._fetcher.wake()
            await self._wait_for_data()

    async def _wait_for_data(self) -> None:
        data = self._fetcher.data
        if not self._reading.may_advance:
            data.clear()
            await data.wait()
        else:
            await asyncio.sleep(0)

    # Partitions and positions

    def assign(self, partitions: Iterable[Partition], *, start: Start | None = None) -> None:
        """Reads exactly these partitions from now on; those already read go on where they are.

        New ones begin at `start`, or where the consumer was told to.
        """
        wanted = [TopicPartition(*where) for where in partitions]
        self._reading.give_back()
        self._topics = ()
        reset = self._start_at if start is None else _timestamp_of(start)
        self._positions.assign(wanted, reset)
        self._feed.emit(
            EventKind.PARTITIONS_CHANGED, f"reads {', '.join(map(str, wanted)) or 'nothing'}"
        )
        self._fetcher.wake()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        return sorted(self._positions.assigned())

    def seek(self, partition: Partition, offset: int) -> None:
        """Goes on at `offset`, 0 or more."""
        if offset < 0:
            raise ValueError(
                f"offset: {offset}; it is 0 or more, and the ends have calls of their own"
            )
        state = self._assigned(partition)
        self._reading.drop(state)
        self._positions.seek(state, offset)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Goes on at the beginning of the log, of all partitions if none is named."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Goes on at the end of the log, of all partitions if none is named."""
        self._reset(partitions, LATEST)

    def seek_to_timestamp(self, time: int | datetime, *partitions: Partition) -> None:
        """Goes on at the first record at or after `time` (ms, or an aware datetime).

        Where there is none so late, at the end. Of all partitions if none is named.
        """
        self._reset(partitions, _timestamp_of(time))

    async def position(self, partition: Partition) -> int:
        """Offset of the next record that will be handed out; looked up if it is not known yet."""
        where = TopicPartition(*partition)
        while True:
            self._check()
            state = self._assigned(where)
            found = self._reading.position(state)
            if found is not None:
                return found
            assert state.reset is not None
            answers = await list_offsets(
                self._cluster, {where: state.reset}, timeout_ms=self._config.request_timeout_ms
            )
            if state.position is None and self._assigned(where) is state:
                offset = answers[where].offset
                if offset < 0:
                    state.reset = LATEST
                else:
                    self.seek(where, offset)

    def pause(self, *partitions: Partition) -> None:
        """Hands out nothing of these partitions until `resume`; all if none is named."""
        self._reading.give_back()
        for state in self._named(partitions):
            self._positions.pause(state)

    def resume(self, *partitions: Partition) -> None:
        """Undoes `pause`; for all partitions if none is named."""
        for state in self._named(partitions):
            self._positions.resume(state)
        self._fetcher.data.set()
        self._fetcher.wake()

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return [where for where in self.assignment() if self._positions[where].paused]

    async def beginning_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """First offset in the log, of each partition named, or of all that are read."""
        return await self._offsets(partitions, EARLIEST)

    async def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """Offset of the next record to be written, exclusive end of what can be read."""
        return await self._offsets(partitions, LATEST)

    async def offsets_for_times(
        self, times: Mapping[Partition, int | datetime]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """`(offset, timestamp_ms)` of the first record at or after each time; None for none."""
        self._check()
        questions = {TopicPartition(*where): _timestamp_of(time) for where, time in times.items()}
        answers = await list_offsets(
            self._cluster, questions, timeout_ms=self._config.request_timeout_ms
        )
        return {
            where: (answer.offset, answer.timestamp_ms) if answer.offset >= 0 else None
            for where, answer in answers.items()
        }

    async def lag(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """How many offsets each partition's position is behind the end; all if none is named."""
        ends = await self.end_offsets(*partitions)
        return {where: max(0, end - await self.position(where)) for where, end in ends.items()}

    async def _offsets(
        self, partitions: tuple[Partition, ...], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        self._check()
        named = [TopicPartition(*where) for where in partitions] or self.assignment()
        answers = await list_offsets(
            self._cluster,
            dict.fromkeys(named, timestamp_ms),
            timeout_ms=self._config.request_timeout_ms,
        )
        return {where: answers[where].offset for where in named}

    # Observing

    @property
    def state(self) -> State:
        """Where the consumer is in its life."""
        return self._state

    def health(self) -> ConsumerHealth:
        """How the consumer is doing, now; costs little."""
        last = self._fetcher.last_fetch_ms
        return ConsumerHealth(
            state=self._state,
            last_error=self._fetcher.last_error,
            assigned=len(self._positions),
            buffered_bytes=self._positions.buffered_bytes,
            in_flight_requests=self._positions.in_flight_requests,
            last_fetch_ms=None if last is None else monotonic_ms() - last,
        )

    def events(self) -> AsyncIterator[Event]:
        """What happens from now on, until the consumer is closed."""
        return self._feed.listen()

    # Inside

    def _check(self) -> None:
        """Raises unless there is something that can be read."""
        if self._state is State.NEW:
            raise Closed("the consumer was not started: use `async with`, or await start()")
        if self._state is State.FAILED:
            raise ClientFailed(
                f"the consumer's task died: {self._cause!r}; make a new consumer"
            ) from self._cause
        if self._state is State.CLOSED:
            raise Closed("the consumer is closed")
        if not len(self._positions):
            raise NoPartitions("nothing to read: name topics, or call assign()")

    def _assigned(self, partition: Partition) -> PartitionState:
        where = TopicPartition(*partition)
        if where not in self._positions:
            raise NoPartitions(f"{where} is not read by this consumer: assign it first")
        return self._positions[where]

    def _named(self, partitions: tuple[Partition, ...]) -> list[PartitionState]:
        named = partitions or tuple(self._positions.assigned())
        return [self._assigned(where) for where in named]

    def _reset(self, partitions: tuple[Partition, ...], timestamp_ms: int) -> None:
        for state in self._named(partitions):
            self._reading.drop(state)
            self._positions.reset(state, timestamp_ms)
        self._fetcher.wake()

    def _partitions_of(self, topic: str) -> list[TopicPartition]:
        count = self._cluster.partition_count(topic) or 0
        return [TopicPartition(topic, partition) for partition in range(count)]

    def _read_new_partitions(self) -> None:
        """Reads partitions that were added to the topics, from their beginning."""
        for topic in self._topics:
            new = [w for w in self._partitions_of(topic) if w not in self._positions]
            if new:
                self._positions.add(new, EARLIEST)
                self._feed.emit(
                    EventKind.PARTITIONS_CHANGED, f"reads {', '.join(map(str, new))} too"
                )

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if self._state in (State.CLOSED, State.FAILED):
            return
        cause = None if task.cancelled() else task.exception()
        if isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
        self._cause = cause
        self._state = State.FAILED
        self._feed.emit(EventKind.FAILED, f"the consumer's task died: {cause!r}")
        self._fetcher.data.set()


def _timestamp_of(start: object) -> int:
    """What ListOffsets is asked for. Raises `ConfigError`."""
    if start == "earliest":
        return EARLIEST
    if start == "latest":
        return LATEST
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigError(f"start: {start} has no time zone; use an aware datetime")
        return int(start.timestamp() * 1000)
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return start
    raise ConfigError(
        f"start: {start!r} is not 'earliest', 'latest', milliseconds since the epoch, "
        "or an aware datetime"
    )
