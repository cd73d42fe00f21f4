"""Importing: one landing after another, each finished before the next is opened.

Owns the order of the steps, which is all that exactly once rests on:

    1  the ledger with the landing is stored      ranges, and so file names, are fixed
    2  every range is read and its files named    again after a crash: the same files
    3  the group's offsets are committed          again after a crash: the same offsets
    4  the ledger without the landing is stored

Of partitions that are new to the directory, the offsets where they begin are committed in front of
step 2, for the note beside them: it tells whose they are to those who would take them for new.

Knows brokers, Spark and the disk by three small interfaces only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from millrace.records import TopicPartition
from millrace_spark.errors import DataLost
from millrace_spark.pipeline.errors import ImportRefused, LedgerError
from millrace_spark.pipeline.landing_plan import (
    Committed,
    Extent,
    Wishes,
    is_news,
    note_of,
    require_not_elsewhere,
    spans,
)
from millrace_spark.pipeline.landing_task import Landed
from millrace_spark.pipeline.ledger import Landing, Ledger, Shape, Span
from millrace_spark.ranges import OffsetRange


class Directory(Protocol):
    """Where ledger and marks are; `directory.LandingDirectory`."""

    def load(self) -> Ledger | None: ...
    def store(self, ledger: Ledger) -> None: ...
    def marks(self, landing: int) -> dict[int, str]: ...
    def sweep(self) -> None: ...
    def sweep_staging(self) -> None: ...


class Log(Protocol):
    """Topics and the group; `topic_log.TopicLog`."""

    def extents(self, topics: Iterable[str]) -> dict[TopicPartition, Extent]: ...
    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]: ...
    def split(self, spans: Mapping[TopicPartition, Span]) -> tuple[OffsetRange, ...]: ...
    def commit(self, group: str, spans: Mapping[TopicPartition, Span], note: str) -> None: ...


class Tasks(Protocol):
    """Who lands ranges; `spark_tasks.SparkTasks`."""

    def __call__(
        self, ledger: Ledger, ranges: Mapping[int, OffsetRange]
    ) -> Mapping[int, Landed]: ...


@dataclass(slots=True)
class Importer:
    """Imports into one directory, which the caller has locked."""

    directory: Directory
    log: Log
    tasks: Tasks
    ledger: Ledger

    @classmethod
    def opened(
        cls, directory: Directory, log: Log, tasks: Tasks, *, fresh: Ledger, group: str | None
    ) -> Importer:
        """An importer with the directory's ledger, or with `fresh` for one that has none.

        Raises `ImportRefused` if the directory has another group than `group`, or other files
        than those of the shape of `fresh`.
        """
        ledger = directory.load()
        if ledger is None:
            return cls(directory, log, tasks, fresh)
        if group is not None and group != ledger.group:
            raise ImportRefused(
                f"{directory} takes what group {ledger.group} stopped at; leave --group out, or "
                "give --to another directory"
            )
        _require_shape(directory, ledger.shape, fresh.shape)
        return cls(directory, log, tasks, ledger)

    def clear(self) -> None:
        """Removes what a killed run has left half written; the first thing to do."""
        if self.ledger.landing is None:
            self.directory.sweep()
        else:
            self.directory.sweep_staging()

    def plan(self, topics: Iterable[str], wishes: Wishes) -> Landing | None:
        """Opens the landing of what is there now; None if nothing is new.

        Raises `ImportRefused`, `DataLost` and the errors of the clients, all before any effect.
        """
        extents = self.log.extents(topics)
        committed = self.log.committed(self.ledger.group, extents)
        found = spans(self.ledger, extents, committed, wishes)
        if not is_news(self.ledger, found):
            return None
        landing = Landing(self.ledger.landings + 1, found, self.log.split(found))
        opened = self.ledger.opened(landing)
        self.directory.store(opened)
        self.ledger = opened
        return landing

    def land(self) -> Landed:
        """Lands what `plan` has opened, or what an earlier run left under way."""
        landing = self.ledger.landing
        if landing is None:
            raise LedgerError("no landing is under way")
        new = {
            where: span for where, span in landing.spans.items() if where not in self.ledger.held
        }
        if new:
            self._require_own(new)
            self._commit({w: replace(s, end_offset=s.start_offset) for w, s in new.items()})
            self._require_own(new)
        done = self._done(landing)
        # Who looked into the group before those notes were there may have left its own since.
        self._require_own(landing.spans)
        self._commit(landing.spans)
        landed = self.ledger.landed()
        self.directory.store(landed)
        self.ledger = landed
        self.directory.sweep()
        return Landed(
            sum(each.records for each in done.values()),
            sum(each.size_bytes for each in done.values()),
            sum(each.files for each in done.values()),
        )

    def lag(self, topics: Iterable[str]) -> int:
        """How many offsets the logs have that have not landed."""
        held = self.ledger.held
        return sum(
            extent.latest - (held[where].end_offset if where in held else extent.earliest)
            for where, extent in self.log.extents(topics).items()
        )

    def _commit(self, spans: Mapping[TopicPartition, Span]) -> None:
        note = note_of(self.ledger.directory_id, str(self.directory))
        self.log.commit(self.ledger.group, spans, note)

    def _require_own(self, partitions: Iterable[TopicPartition]) -> None:
        for where, each in self.log.committed(self.ledger.group, partitions).items():
            require_not_elsewhere(self.ledger, where, each)

    def _done(self, landing: Landing) -> dict[int, Landed]:
        """What became of every range; lands those that are not done yet."""
        done = _decoded(self.directory.marks(landing.number))
        left = {index: each for index, each in enumerate(landing.ranges) if index not in done}
        if left:
            try:
                done.update(self.tasks(self.ledger, left))
            except DataLost as error:
                raise DataLost(f"{error}; for an import that is --skip-lost") from error
        if missing := [str(each) for i, each in enumerate(landing.ranges) if i not in done]:
            raise LedgerError(f"Spark is done, and there is no word of {', '.join(missing[:3])}")
        return done


def _decoded(marks: Mapping[int, str]) -> dict[int, Landed]:
    decoded = {index: Landed.decode(text) for index, text in marks.items()}
    return {index: landed for index, landed in decoded.items() if landed is not None}


def _require_shape(directory: Directory, held: Shape, wanted: Shape) -> None:
    for option, has, says in (
        ("--format", held.format, wanted.format),
        ("--partition-by", ",".join(held.partition_by), ",".join(wanted.partition_by)),
    ):
        if has != says:
            raise ImportRefused(
                f"{directory} has files of {has or 'none'}, and {option} says {says or 'none'}; "
                "give what it has, or --to another directory"
            )
    if held.schema != wanted.schema:
        raise ImportRefused(
            f"{directory} has files of {'another' if held.schema else 'no'} --schema; give what "
            "it has, or --to another directory"
        )
