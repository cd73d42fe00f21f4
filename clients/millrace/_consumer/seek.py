"""The positions of a consumer: the calls that ask for them and set them.

Owns these calls for all consumers, in a group or not. What is read at all is `consumer`'s and the
group's. `Positions` has the state, the brokers the ends of the logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from millrace._cluster.cluster import Cluster
from millrace._cluster.offsets import list_offsets
from millrace._consumer.fetch_buffer import FetchBuffer
from millrace._consumer.fetcher import Fetcher
from millrace._consumer.group_offsets import GroupOffsets
from millrace._consumer.partition_state import PartitionState, error_without_start
from millrace._consumer.positions import Positions
from millrace._kafka_methods import KafkaMethodHints
from millrace._owner import Owner
from millrace.config import ConsumerConfig
from millrace.errors import ConfigError, NoPartitions
from millrace.records import TopicPartition
from millrace_protocol.messages.list_offsets import EARLIEST, LATEST

Start = Literal["earliest", "latest"] | int | datetime
"""Where to begin: an end of the log, or the first record at or after a time (ms, or aware)."""
Partition = TopicPartition | tuple[str, int]


class SeekableConsumer(KafkaMethodHints):
    """A consumer with the calls that ask for positions and set them."""

    _config: ConsumerConfig
    _cluster: Cluster
    _positions: Positions
    _fetch_buffer: FetchBuffer
    _fetcher: Fetcher
    _group_offsets: GroupOffsets | None
    owner: Owner

    def _check(self) -> None:
        """Raises unless there is something that can be read."""
        raise NotImplementedError

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        return sorted(self._positions.assigned())

    def seek(self, partition: Partition, offset: int) -> None:
        """Continues at `offset`, 0 or more."""
        if offset < 0:
            raise ValueError(
                f"offset: {offset}; it is 0 or more, and the ends have calls of their own"
            )
        state = self._assigned(partition)
        self._fetch_buffer.drop(state)
        self._positions.seek(state, offset)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continues at the beginning of the log; in all partitions if none is named."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Continues at the end of the log; in all partitions if none is named."""
        self._reset(partitions, LATEST)

    def seek_to_timestamp(self, time: int | datetime, *partitions: Partition) -> None:
        """Continues at the first record at or after `time` (ms, or an aware datetime).

        Where no record is that late, at the end. In all partitions if none is named.
        """
        self._reset(partitions, timestamp_of(time))

    async def position(self, partition: Partition) -> int:
        """Offset of the next record that will be handed out; looked up if it is not known yet."""
        where = TopicPartition(*partition)
        while True:
            self._check()
            state = self._assigned(where)
            found = self._fetch_buffer.position(state)
            if found is not None:
                return found
            if self._group_offsets is not None and self._group_offsets.is_looking_up(where):
                await self._group_offsets.looked_up()
                continue
            if state.reset is None:
                raise error_without_start(state)
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
        self._fetch_buffer.give_back()
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
        questions = {TopicPartition(*where): timestamp_of(time) for where, time in times.items()}
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

    # Inside

    def _assigned(self, partition: Partition) -> PartitionState:
        self.owner.check()
        where = TopicPartition(*partition)
        if where not in self._positions:
            raise NoPartitions(f"{where} is not read by this consumer: assign it first")
        return self._positions[where]

    def _named(self, partitions: tuple[Partition, ...]) -> list[PartitionState]:
        named = partitions or tuple(self._positions.assigned())
        return [self._assigned(where) for where in named]

    def _reset(self, partitions: tuple[Partition, ...], timestamp_ms: int) -> None:
        for state in self._named(partitions):
            self._fetch_buffer.drop(state)
            self._positions.reset(state, timestamp_ms)
        self._fetcher.wake()


def timestamp_of(start: object) -> int:
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
