"""What the brokers have of the topics of a stream, asked again and again on the driver.

Owns the connection, which outlives a call, and asking anew when it fails. Decides nothing about
the answers: `continuation` and `admission` do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from millrace.errors import MillraceError, UnknownTopicOrPartition
from millrace.records import TopicPartition
from millrace.sync import Admin
from millrace_spark.admission import Backlog, Step
from millrace_spark.options import ReadOptions
from millrace_spark.patience import PAUSE_MS_FIRST, PAUSE_MS_MAX, client_options, started
from millrace_spark.planner import cut, extents, select
from millrace_spark.ranges import LogExtent, OffsetRange, plan_ranges, start_of
from millrace_spark.selection import Assign, Selection, Subscribe, SubscribePattern
from millrace_spark.stream_offsets import StreamOffsets

REQUEST_TIMEOUT_MS_MAX = 5_000
"""Of one request; a question is asked anew, with the topics there are by then."""

T = TypeVar("T")


class LogWatch:
    """Connects when first asked; every question raises the last error when `deadlineMs` is over.

    Not for several threads.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._admin: Admin | None = None

    def close(self) -> None:
        """Disconnects; the next question connects again."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def ask(self, question: Callable[[Admin], T]) -> T:
        """The answer, from a new connection where one fails. Raises what trying cannot cure."""
        deadline = time.monotonic() + self._options.deadline_ms / 1000
        pause_ms = PAUSE_MS_FIRST
        while True:
            try:
                return question(self._connected())
            except MillraceError as error:
                self.close()
                if not error.retriable or time.monotonic() + pause_ms / 1000 >= deadline:
                    raise
            time.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    def start(self) -> StreamOffsets:
        """Where a new stream begins; all topics that are named must be there.

        Raises `OptionError`, and `DataLost` for offsets asked for by number that are not in the
        log, unless they are to be skipped.
        """

        def question(admin: Admin) -> dict[TopicPartition, LogExtent]:
            return extents(admin, select(admin, self._options), self._options)

        found = self.ask(question)
        plan_ranges(found, self._options)  # raises for what is lost already
        offsets = {}
        for where, extent in found.items():
            first = start_of(where, extent, self._options)
            offsets[where] = min(max(first, extent.earliest), extent.latest)
        return StreamOffsets(
            offsets, {where.topic: extent.topic_id for where, extent in found.items()}
        )

    def latest(self) -> StreamOffsets:
        """The ends of the logs of all selected partitions that are there now."""
        selects = self._options.selection.selects
        return self.ask(lambda admin: _ends(admin, self._names(admin), selects))

    def latest_of(self, wheres: Collection[TopicPartition]) -> StreamOffsets:
        """The ends of the logs of those of these partitions that are there, selected or not."""
        names = sorted({where.topic for where in wheres})
        return self.ask(lambda admin: _ends(admin, names, lambda *where: where in wheres))

    def earliest(self, wheres: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The beginnings of these logs; asks nobody for none."""
        questions = dict[TopicPartition | tuple[str, int], str | int](
            dict.fromkeys(wheres, "earliest")
        )
        if not questions:
            return {}
        found = self.ask(lambda admin: admin.list_offsets(questions))
        return {where: answer.offset for where, answer in found.items()}

    def steps(
        self, backlogs: Mapping[TopicPartition, Backlog], *, step_bytes: int
    ) -> dict[TopicPartition, list[Step]]:
        """The backlogs in steps of about so many bytes on disk; none for an empty one.

        Raises `OffsetOutOfRange` for what the logs do not hold any more.
        """
        ranges = dict[TopicPartition | tuple[str, int], tuple[int, int]](
            {where: (each.start_offset, each.end_offset) for where, each in backlogs.items()}
        )
        found = self.ask(lambda admin: admin.split_ranges(ranges, piece_bytes=step_bytes))
        return {
            where: [Step(piece.end_offset, piece.size_bytes) for piece in pieces]
            for where, pieces in found.items()
        }

    def cut(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges in pieces as the options say. Raises `OffsetOutOfRange`, `OptionError`."""
        return self.ask(lambda admin: cut(admin, ranges, self._options))

    def _names(self, admin: Admin) -> Sequence[str]:
        selection = self._options.selection
        if isinstance(selection, SubscribePattern):
            return selection.topics_of(admin.list_topics())
        return named_topics(selection)

    def _connected(self) -> Admin:
        if self._admin is None:
            settings = client_options(self._options)
            settings["request_timeout_ms"] = min(
                settings["request_timeout_ms"], REQUEST_TIMEOUT_MS_MAX
            )
            self._admin = started(
                lambda: Admin(self._options.servers, **settings),
                deadline_ms=self._options.deadline_ms,
            )
        return self._admin


def _ends(admin: Admin, names: Sequence[str], selects: Callable[[str, int], bool]) -> StreamOffsets:
    """The ends of the logs of the selected partitions of these topics, where they are there."""
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
    """The topics that are selected by their names."""
    if isinstance(selection, Subscribe):
        return selection.topics
    return tuple(selection.partitions) if isinstance(selection, Assign) else ()
