"""Queries of the driver about the logs of a stream's topics.

Owns the connection, which lives longer than one call, and the retries. Decides nothing:
`offset_validation` and `rate_limit` judge the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from millrace.errors import MillraceError, UnknownTopicOrPartition
from millrace.records import TopicPartition
from millrace.sync import Admin
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.options.selection import Assign, Selection, Subscribe, SubscribePattern
from millrace_spark.reading.planner import cut, extents, select
from millrace_spark.reading.ranges import LogExtent, OffsetRange, plan_ranges, start_of
from millrace_spark.retry import start_admin, with_retry
from millrace_spark.streaming.rate_limit import Backlog, Step
from millrace_spark.streaming.stream_offsets import StreamOffsets

REQUEST_TIMEOUT_MS_MAX = 5_000
"""Of one request. A retry sends a new request, about the topics that exist by then."""

T = TypeVar("T")


class LogClient:
    """Connects for the first query. A query raises its last error when `deadlineMs` is over.

    Not for several threads.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._admin: Admin | None = None

    def close(self) -> None:
        """Disconnects; the next query connects again."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def query(self, ask: Callable[[Admin], T]) -> T:
        """The result of `ask`; a retry takes a new connection. Raises errors not retriable."""

        def attempt() -> T:
            try:
                return ask(self._connected())
            except MillraceError:
                self.close()
                raise

        return with_retry(attempt, deadline_ms=self._options.deadline_ms)

    def start(self) -> StreamOffsets:
        """The offsets where a new stream begins; every topic named by the options must exist.

        Raises `OptionError`, and `DataLost` for requested offsets that are not in the log, unless
        the options skip lost records.
        """

        def ask(admin: Admin) -> dict[TopicPartition, LogExtent]:
            return extents(admin, select(admin, self._options), self._options)

        found = self.query(ask)
        plan_ranges(found, self._options)  # raises for records that are lost already
        offsets = {}
        for where, extent in found.items():
            first = start_of(where, extent, self._options)
            offsets[where] = min(max(first, extent.earliest), extent.latest)
        return StreamOffsets(
            offsets, {where.topic: extent.topic_id for where, extent in found.items()}
        )

    def latest(self) -> StreamOffsets:
        """The current end offsets of all selected partitions."""
        selects = self._options.selection.selects
        return self.query(lambda admin: _ends(admin, self._names(admin), selects))

    def latest_of(self, wheres: Collection[TopicPartition]) -> StreamOffsets:
        """The current end offsets of those of these partitions that exist, selected or not."""
        names = sorted({where.topic for where in wheres})
        return self.query(lambda admin: _ends(admin, names, lambda *where: where in wheres))

    def earliest(self, wheres: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The start offsets of these logs; sends no request for no partitions."""
        asked = dict[TopicPartition | tuple[str, int], str | int](dict.fromkeys(wheres, "earliest"))
        if not asked:
            return {}
        found = self.query(lambda admin: admin.list_offsets(asked))
        return {where: answer.offset for where, answer in found.items()}

    def steps(
        self, backlogs: Mapping[TopicPartition, Backlog], *, step_bytes: int
    ) -> dict[TopicPartition, list[Step]]:
        """The backlogs in steps of about `step_bytes` on disk; no steps for an empty backlog.

        Raises `OffsetOutOfRange` for offsets that are no longer in the log.
        """
        ranges = dict[TopicPartition | tuple[str, int], tuple[int, int]](
            {where: (each.start_offset, each.end_offset) for where, each in backlogs.items()}
        )
        found = self.query(lambda admin: admin.split_ranges(ranges, piece_bytes=step_bytes))
        return {
            where: [Step(piece.end_offset, piece.size_bytes) for piece in pieces]
            for where, pieces in found.items()
        }

    def cut(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges in pieces by the options. Raises `OffsetOutOfRange`, `OptionError`."""
        return self.query(lambda admin: cut(admin, ranges, self._options))

    def _names(self, admin: Admin) -> Sequence[str]:
        selection = self._options.selection
        if isinstance(selection, SubscribePattern):
            return selection.topics_of(admin.list_topics())
        return named_topics(selection)

    def _connected(self) -> Admin:
        if self._admin is None:
            self._admin = start_admin(
                self._options.servers,
                self._options.credentials,
                deadline_ms=self._options.deadline_ms,
                request_timeout_ms=REQUEST_TIMEOUT_MS_MAX,
            )
        return self._admin


def _ends(admin: Admin, names: Sequence[str], selects: Callable[[str, int], bool]) -> StreamOffsets:
    """The end offsets of the selected partitions of those of these topics that exist."""
    topics = [
        outcome.unwrap()
        for outcome in admin.describe_topics(names)
        if not isinstance(outcome.error, UnknownTopicOrPartition)
    ]
    wheres = [
        TopicPartition(topic.name, partition.partition)
        for topic in topics
        for partition in topic.partitions
        if selects(topic.name, partition.partition)
    ]
    ids = {topic.name: str(topic.topic_id) for topic in topics}
    ends = admin.list_offsets(dict.fromkeys(wheres, "latest"))
    return StreamOffsets(
        {where: ends[where].offset for where in wheres},
        {where.topic: ids[where.topic] for where in wheres},
    )


def named_topics(selection: Selection) -> tuple[str, ...]:
    """The topics that a selection names; none for a pattern."""
    if isinstance(selection, Subscribe):
        return selection.topics
    return tuple(selection.partitions) if isinstance(selection, Assign) else ()
