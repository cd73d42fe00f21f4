"""The task that writes the files of one offset range, on an executor.

Owns the way of a range from fetches to files. The range alone determines the records and the names
of the files, so a second run writes the same files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from millrace._arrow.corrupt_counts import FIELDS_MAX, NOTHING_CORRUPT, CorruptCounts
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.pipeline.corrupt_records import total
from millrace_spark.pipeline.directory import ImportDirectory
from millrace_spark.pipeline.errors import RecordUnfit
from millrace_spark.pipeline.file_formats import TEXT_FORMATS, Writer, as_text, open_writer
from millrace_spark.pipeline.ledger import FileLayout
from millrace_spark.pipeline.partition_paths import cut
from millrace_spark.pipeline.record_columns import record_batches, time_column
from millrace_spark.pipeline.value_schema import field_names
from millrace_spark.reading.ranges import OffsetRange

BUFFERED_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of rows in memory, over all files of a range; they are written as large row groups."""
FILES_MAX = 800
"""Open files of one range; the usual limit of a process is 1,024."""
TOPIC_CHARS_MAX = 150


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The totals of one range, or of a batch."""

    records: int = 0
    size_bytes: int = 0
    """Of the files."""
    files: int = 0
    corrupt: CorruptCounts = NOTHING_CORRUPT
    empty_fields: tuple[str, ...] = ()
    """Fields of the schema that no record has a value of; at most `FIELDS_MAX`."""

    def encode(self) -> str:
        """The text of a marker."""
        counts = {"records": self.records, "size_bytes": self.size_bytes, "files": self.files}
        return json.dumps(
            {**counts, "corrupt": self.corrupt.document(), "empty_fields": self.empty_fields}
        )

    @classmethod
    def decode(cls, text: str) -> RangeResult | None:
        """The result in a marker; None if a power failure has damaged it."""
        try:
            document = json.loads(text)
            corrupt = document.pop("corrupt", None)
            empty_fields = tuple(document.pop("empty_fields", ()))
            counts = NOTHING_CORRUPT if corrupt is None else CorruptCounts.of(corrupt)
            return cls(**document, corrupt=counts, empty_fields=empty_fields)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    @classmethod
    def sum_of(cls, results: Iterable[RangeResult]) -> RangeResult:
        """The totals of all."""
        found = tuple(results)
        return cls(
            sum(each.records for each in found),
            sum(each.size_bytes for each in found),
            sum(each.files for each in found),
            total(each.corrupt for each in found),
            _in_all([each.empty_fields for each in found if each.records]),
        )


@dataclass(frozen=True, slots=True)
class RangeTask:
    """The parameters of the executors that write ranges of one batch."""

    directory: ImportDirectory
    batch_number: int
    layout: FileLayout
    options: ReadOptions

    def write(self, index: int, wanted: OffsetRange) -> RangeResult:
        """Writes and commits the files of a range, and marks it as finished.

        Raises what `read_range` does, `ImportRefused`, `RecordUnfit` and `OSError`.
        """
        self.directory.require_ledger()
        with ExitStack() as staged:
            files = _Files(self.directory, self.layout, staged)
            records = 0
            corrupt = NOTHING_CORRUPT
            empty_fields: set[str] | None = None
            where = f"{wanted.topic}-{wanted.partition}"
            time = time_column(self.layout)
            try:
                for found in record_batches(wanted, self.options, self.layout):
                    records += found.batch.num_rows
                    corrupt = corrupt.added(found.corruption, where, found.offsets)
                    empty = _empty_columns(found.batch)
                    empty_fields = empty if empty_fields is None else empty_fields & empty
                    for path, rows in cut(found.batch, self.layout.partition_by, time=time):
                        files.add(path, rows)
                size_bytes = files.commit(file_name(wanted, self.layout.format))
            except RecordUnfit as error:
                raise RecordUnfit(f"{wanted}: {error}") from error
        fields = () if self.layout.schema is None else field_names(self.layout.schema)
        empty_names = [name for name in fields if name in (empty_fields or ())][:FIELDS_MAX]
        result = RangeResult(records, size_bytes, len(files), corrupt, tuple(empty_names))
        self.directory.mark(self.batch_number, index, result.encode())
        return result


def _empty_columns(batch: pa.RecordBatch) -> set[str]:
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return {name for name, column in columns if column.null_count == len(column)}


def _in_all(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if not names:
        return ()
    return tuple(name for name in names[0] if all(name in each for each in names[1:]))


def file_name(wanted: OffsetRange, file_format: str) -> str:
    """The name of the file of a range; sorts by offset within a partition.

    Begins with `part-`, because readers ignore names that begin with `_` or `.`, and a topic's may.
    """
    topic = wanted.topic
    if len(topic) > TOPIC_CHARS_MAX:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
        topic = f"{topic[:TOPIC_CHARS_MAX]}-{digest}"
    offsets = f"{wanted.start_offset:020d}-{wanted.end_offset:020d}"
    return f"part-{topic}-{wanted.partition}-{offsets}.{file_format}"


@dataclass(slots=True)
class _File:
    file: IO[bytes]
    staged: Path
    buffered: list[pa.RecordBatch]
    writer: Writer | None = None


class _Files:
    """The files of one range, by directory; buffers rows until there are many."""

    def __init__(self, directory: ImportDirectory, layout: FileLayout, staged: ExitStack) -> None:
        self._directory = directory
        self._layout = layout
        self._staged = staged
        self._files: dict[str, _File] = {}
        self._buffered_bytes = 0

    def __len__(self) -> int:
        return len(self._files)

    def add(self, path: str, rows: pa.RecordBatch) -> None:
        """Adds rows to the file in a directory."""
        found = self._files.get(path)
        if found is None:
            if len(self._files) == FILES_MAX:
                raise RecordUnfit(
                    f"its records need more than {FILES_MAX} directories; set --partition-by to "
                    "columns with fewer values, or a smaller --max-partition-bytes"
                )
            file, staged = self._staged.enter_context(self._directory.staged())
            found = self._files[path] = _File(file, staged, [])
        found.buffered.append(rows)
        self._buffered_bytes += rows.nbytes
        if self._buffered_bytes > BUFFERED_BYTES_MAX:
            self._write_buffered()

    def commit(self, name: str) -> int:
        """Closes and commits all files; returns their bytes."""
        self._write_buffered()
        size_bytes = 0
        for path, each in self._files.items():
            assert each.writer is not None
            each.writer.close()
            size_bytes += each.file.tell()
            self._directory.commit_file(each.file, each.staged, f"{path}/{name}" if path else name)
        return size_bytes

    def _write_buffered(self) -> None:
        for each in self._files.values():
            if not each.buffered:
                continue
            table = pa.Table.from_batches(each.buffered)
            if self._layout.format in TEXT_FORMATS:
                table = as_text(table)
            if each.writer is None:
                each.writer = open_writer(self._layout.format, each.file, table.schema)
            each.writer.write_table(table)
            each.buffered = []
        self._buffered_bytes = 0


def write_ranges(
    batches: Iterator[pa.RecordBatch],
    *,
    task: RangeTask,
    todo: Sequence[tuple[int, OffsetRange]],
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: takes indexes of `todo`, and returns rows of `RANGE_RESULT`."""
    for batch in batches:
        for row_id in batch.column(0).to_pylist():
            index, wanted = todo[row_id]
            row = {"range_index": index, "result": task.write(index, wanted).encode()}
            yield pa.RecordBatch.from_pylist([row], schema=RANGE_RESULT)


RANGE_RESULT = pa.schema([("range_index", pa.int64()), ("result", pa.string())])
RANGE_RESULT_DDL = "range_index long, result string"
