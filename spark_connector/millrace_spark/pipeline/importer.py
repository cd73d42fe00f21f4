"""The steps of an import: one batch after another.

Owns the order of the steps, which makes an import exactly once:

    1  store the ledger with the batch            ranges, and so file names, are fixed
    2  read every range, commit its files         after a crash: the same files again
    3  commit the group's offsets                 after a crash: the same offsets again
    4  store the ledger without the batch

For partitions that are new to the directory, the importer commits their start offsets before step
2. The metadata of this commit names the directory, so that another import rejects the group.

Knows brokers, Spark and the disk by three small interfaces only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from millrace.records import TopicPartition
from millrace_spark.errors import DataLost
from millrace_spark.pipeline.corrupt_records import CorruptLimit
from millrace_spark.pipeline.errors import ImportRefused, LedgerError, TooManyCorrupt
from millrace_spark.pipeline.import_plan import (
    Committed,
    Extent,
    ImportPolicy,
    commit_metadata,
    has_new_offsets,
    require_own_group,
    spans,
)
from millrace_spark.pipeline.ledger import FileLayout, ImportBatch, Ledger, Span
from millrace_spark.pipeline.range_task import RangeResult, file_name
from millrace_spark.pipeline.record_columns import require_only_new_fields
from millrace_spark.reading.ranges import OffsetRange


class Directory(Protocol):
    """Stores the ledger and the markers of finished ranges; `directory.ImportDirectory`."""

    def load(self) -> Ledger | None: ...
    def store(self, ledger: Ledger) -> None: ...
    def markers(self, batch_number: int) -> dict[int, str]: ...
    def delete_batch(self, names: Container[str]) -> None: ...
    def delete_temporary(self) -> None: ...
    def delete_staging(self) -> None: ...


class Log(Protocol):
    """The topics and the group on the brokers; `topic_log.TopicLog`."""

    def extents(self, topics: Iterable[str]) -> dict[TopicPartition, Extent]: ...
    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]: ...
    def split(self, spans: Mapping[TopicPartition, Span]) -> tuple[OffsetRange, ...]: ...
    def commit(self, group: str, spans: Mapping[TopicPartition, Span], metadata: str) -> None: ...


class Tasks(Protocol):
    """Writes the files of ranges; `spark_tasks.SparkTasks`."""

    def __call__(
        self, ledger: Ledger, ranges: Mapping[int, OffsetRange]
    ) -> Mapping[int, RangeResult]: ...


@dataclass(slots=True)
class Importer:
    """Imports into one directory, which the caller has locked."""

    directory: Directory
    log: Log
    tasks: Tasks
    ledger: Ledger
    layout: FileLayout
    """Of the files of the next batch."""

    @classmethod
    def open(
        cls, directory: Directory, log: Log, tasks: Tasks, *, fresh: Ledger, group: str | None
    ) -> Importer:
        """An importer with the directory's ledger, or with `fresh` for a new directory.

        The next batch has the layout of `fresh`, which may have more fields than the files. Raises
        `ImportRefused` if the directory has another group than `group`, or files of a layout that
        differs otherwise.
        """
        ledger = directory.load()
        if ledger is None:
            return cls(directory, log, tasks, fresh, fresh.layout)
        if group is not None and group != ledger.group:
            raise ImportRefused(
                f"{directory} is imported with group {ledger.group}; leave --group out, or give "
                "another directory with --to"
            )
        if ledger.batch is not None or ledger.batch_count:
            _require_layout(directory, ledger.batch_layout, fresh.layout)
        return cls(directory, log, tasks, ledger, fresh.layout)

    def clean_up(self) -> None:
        """Deletes unfinished files of a killed run; the first step of a run."""
        if self.ledger.batch is None:
            self.directory.delete_temporary()
        else:
            self.directory.delete_staging()

    def begin_batch(self, topics: Iterable[str], policy: ImportPolicy) -> ImportBatch | None:
        """Begins a batch of all new records; None if there are none.

        Raises `ImportRefused`, `DataLost` and the errors of the clients, all before any effect.
        """
        extents = self.log.extents(topics)
        committed = self.log.committed(self.ledger.group, extents)
        found = spans(self.ledger, extents, committed, policy)
        if not has_new_offsets(self.ledger, found):
            return None
        ranges = self.log.split(found)
        batch = ImportBatch(self.ledger.batch_count + 1, found, ranges, self.layout.schema)
        # A directory without files takes any layout.
        is_new = not self.ledger.batch_count
        before = replace(self.ledger, layout=self.layout) if is_new else self.ledger
        begun = before.begin(batch)
        self.directory.store(begun)
        self.ledger = begun
        return batch

    def write_batch(self, limit: CorruptLimit | None = None) -> RangeResult:
        """Writes and commits the open batch, which `begin_batch` or an earlier run began.

        Raises `TooManyCorrupt` if more of its records are corrupt than `limit` allows. Then the
        batch is given up, and no file of it is left.
        """
        batch = self.ledger.batch
        if batch is None:
            raise LedgerError("no batch is open")
        new = {
            where: span for where, span in batch.spans.items() if where not in self.ledger.imported
        }
        if new:
            self._require_own_group(new)
            self._commit({w: replace(s, end_offset=s.start_offset) for w, s in new.items()})
            self._require_own_group(new)
        results = self._results(batch)
        found = RangeResult.sum_of(results.values())
        if limit is not None:
            is_first = not self.ledger.batch_count
            excess = limit.excess(found.corrupt, found.records, is_first=is_first)
            if excess is not None:
                self._abandon(batch)
                raise TooManyCorrupt(excess)
        # Another import may have read the group before the commit above, and committed since.
        self._require_own_group(batch.spans)
        self._commit(batch.spans)
        committed = self.ledger.commit()
        self.directory.store(committed)
        self.ledger = committed
        self.directory.delete_temporary()
        return found

    def lag(self, topics: Iterable[str]) -> int:
        """The number of offsets in the logs that are not imported."""
        imported = self.ledger.imported
        return sum(
            extent.latest - (imported[where].end_offset if where in imported else extent.earliest)
            for where, extent in self.log.extents(topics).items()
        )

    def _abandon(self, batch: ImportBatch) -> None:
        names = {file_name(each, self.ledger.layout.format) for each in batch.ranges}
        self.directory.delete_batch(names)
        abandoned = self.ledger.abandon()
        self.directory.store(abandoned)
        self.ledger = abandoned

    def _commit(self, spans: Mapping[TopicPartition, Span]) -> None:
        metadata = commit_metadata(self.ledger.directory_id, str(self.directory))
        self.log.commit(self.ledger.group, spans, metadata)

    def _require_own_group(self, partitions: Iterable[TopicPartition]) -> None:
        for where, each in self.log.committed(self.ledger.group, partitions).items():
            require_own_group(self.ledger, where, each)

    def _results(self, batch: ImportBatch) -> dict[int, RangeResult]:
        """The result of every range; writes the ranges that are not finished."""
        results = _decoded(self.directory.markers(batch.number))
        open_ranges = {
            index: each for index, each in enumerate(batch.ranges) if index not in results
        }
        if open_ranges:
            try:
                results.update(self.tasks(self.ledger, open_ranges))
            except DataLost as error:
                raise DataLost(f"{error}; in an import, set --skip-lost") from error
        if missing := [str(each) for i, each in enumerate(batch.ranges) if i not in results]:
            raise LedgerError(f"the Spark job has no result of {', '.join(missing[:3])}")
        return results


def _decoded(markers: Mapping[int, str]) -> dict[int, RangeResult]:
    decoded = {index: RangeResult.decode(text) for index, text in markers.items()}
    return {index: result for index, result in decoded.items() if result is not None}


def _require_layout(directory: Directory, current: FileLayout, wanted: FileLayout) -> None:
    for option, has, wants in (
        ("--format", current.format, wanted.format),
        ("--partition-by", ",".join(current.partition_by), ",".join(wanted.partition_by)),
    ):
        if has != wants:
            raise ImportRefused(
                f"{directory} has files of {has or 'none'}, and {option} is {wants or 'none'}; "
                "give the same, or another directory with --to"
            )
    if current.schema == wanted.schema:
        return
    if current.schema is None or wanted.schema is None:
        raise ImportRefused(
            f"{directory} has files of {'another' if current.schema else 'no'} --schema; give the "
            "same, or another directory with --to"
        )
    try:
        require_only_new_fields(current, wanted)
    except ImportRefused as error:
        raise ImportRefused(
            f"{directory} has files of another --schema: {error}. Fields may be added; for other "
            "changes give another directory with --to"
        ) from None
