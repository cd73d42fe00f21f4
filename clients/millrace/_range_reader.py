"""Offset ranges of a topic: planned by its leaders' answers, and read as whole fetches.

Owns the requests. `_arrow.offset_ranges` computes the ranges; columns are made by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

from millrace._arrow.offset_ranges import End, LogExtent, Ranges, Start, ranges_of, time_of
from millrace._owner import Owner
from millrace.admin import Admin
from millrace.config import ClientOptions
from millrace.consumer import Consumer
from millrace.errors import ConfigError
from millrace.events import State
from millrace.records import RecordBatch, TopicPartition

FETCH_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of one partition in one fetch: decoding a fetch has costs that do not grow with it."""
FETCH_BYTES_MIN = 64 * 1024
BUFFER_BYTES = 24 * 1024 * 1024
"""Bytes that are read ahead of the caller."""
_WHOLE = 2**62
"""More bytes than any range has: the range is one piece."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The records of a read; times are those of the first record at or after them."""

    topic: str
    start: Start = "earliest"
    end: End = "latest"
    partitions: Collection[int] | None = None
    """None: all of them."""

    def __post_init__(self) -> None:
        time_of("start", self.start)
        time_of("end", self.end)


class Fetch(NamedTuple):
    """Records of a range; those at or behind `end_offset` do not count."""

    records: RecordBatch[bytes, bytes]
    end_offset: int


async def plan(servers: Any, bounds: Bounds, options: ClientOptions) -> Ranges:
    """The ranges of a read, up to the ends that the logs have now; none is empty.

    Raises `UnknownTopicOrPartition`, `ConfigError`, and the errors of the connections.
    """
    async with Admin(servers, **options) as admin:
        topic = await admin.describe_topic(bounds.topic)
        count = len(topic.partitions)
        wanted = range(count) if bounds.partitions is None else sorted({*bounds.partitions})
        for partition in wanted:
            if not 0 <= partition < count:
                raise ConfigError(
                    f"partitions: {bounds.topic} has no partition {partition}; it has 0 to "
                    f"{count - 1}"
                )
        wheres = [TopicPartition(bounds.topic, partition) for partition in wanted]
        earliest = await admin.list_offsets(dict.fromkeys(wheres, "earliest"))
        latest = await admin.list_offsets(dict.fromkeys(wheres, "latest"))
        start_found = await _find(admin, wheres, time_of("start", bounds.start))
        end_found = await _find(admin, wheres, time_of("end", bounds.end))
        extents = {
            where: LogExtent(
                earliest[where].offset,
                latest[where].offset,
                start_found.get(where),
                end_found.get(where),
            )
            for where in wheres
        }
        return ranges_of(extents, start=bounds.start, end=bounds.end)


class RangeReader:
    """Reads ranges from `start` to their ends. Made anywhere, started inside a running loop.

    `earliest_ms` leaves out the records before the first one at or after that time.
    """

    def __init__(
        self, servers: Any, ranges: Ranges, *, options: ClientOptions, earliest_ms: int = 0
    ) -> None:
        self._servers = servers
        self._ranges = ranges
        self._options = options
        self._earliest_ms = earliest_ms
        self._consumer: Consumer[bytes, bytes] | None = None
        # Its consumer reports a forgotten close; this one is never open.
        self.owner = Owner("reader")
        self.offsets_read = 0
        self.bytes_read = 0
        """Bytes of fetches, as the brokers sent them."""

    @property
    def offset_count(self) -> int:
        """The number of offsets of all ranges."""
        return sum(end - start for start, end in self._ranges.values())

    @property
    def is_open(self) -> bool:
        """Whether it has connections."""
        return self._consumer is not None and self._consumer.state is State.RUNNING

    async def start(self) -> None:
        """Asks for the times and sizes of the ranges, and begins to read ahead."""
        size_max = await self._narrow()
        if not self._ranges:
            return
        fetch_bytes = min(max(size_max, FETCH_BYTES_MIN), FETCH_BYTES_MAX)
        consumer: Consumer[bytes, bytes] = Consumer(
            self._servers,
            max_partition_bytes=fetch_bytes,
            buffer_bytes=BUFFER_BYTES,
            **self._options,
        )
        await consumer.start()
        self._consumer = consumer
        self._positions = {where: first for where, (first, _) in self._ranges.items()}
        # The consumer fetches nothing before the next wait, so nothing from before the ranges.
        consumer.assign(self._ranges)
        for where, first in self._positions.items():
            consumer.seek(where, first)
        self._fetches = consumer.batches()

    async def next_fetch(self) -> Fetch | None:
        """The next records; None behind the end of all ranges.

        The caller must `del` it before it asks for another, so that the client can use its buffer
        again. Raises `OffsetOutOfRange` for records that retention has removed since.
        """
        while self._consumer is not None and self._positions:
            records = await anext(self._fetches)
            where = records.where
            if where not in self._positions:
                continue
            end = self._ranges[where][1]
            reached = min(records.next_offset, end)
            self.offsets_read += reached - self._positions[where]
            self.bytes_read += len(records.view)
            self._positions[where] = reached
            if reached == end:
                del self._positions[where]
                self._consumer.pause(where)
            return Fetch(records, end)
        return None

    async def close(self) -> None:
        """Disconnects."""
        if self._consumer is not None:
            async with aclosing(self._fetches):  # type: ignore[type-var]
                await self._consumer.close()

    async def _narrow(self) -> int:
        """Cuts off what is before `earliest_ms`; returns the bytes of the largest range."""
        async with Admin(self._servers, **self._options) as admin:
            if self._earliest_ms > 0:
                # Asked after the ends: a time that no record has reached is behind all ranges.
                found = await _find(admin, [*self._ranges], self._earliest_ms)
                self._ranges = {
                    where: (max(start, found[where]), end)
                    for where, (start, end) in self._ranges.items()
                    if 0 <= found[where] < end
                }
            if not self._ranges:
                return 0
            asked: dict[TopicPartition | tuple[str, int], tuple[int, int]] = dict(
                self._ranges.items()
            )
            pieces = await admin.split_ranges(asked, piece_bytes=_WHOLE)
            return max(sum(piece.size_bytes for piece in found) for found in pieces.values())


async def _find(
    admin: Admin, wheres: Collection[TopicPartition], time_ms: int | None
) -> Mapping[TopicPartition, int]:
    """The offset of the first record at or after a time, -1 for none; nothing for no time."""
    if time_ms is None:
        return {}
    answers = await admin.list_offsets(dict.fromkeys(wheres, time_ms))
    return {where: answer.offset for where, answer in answers.items()}
