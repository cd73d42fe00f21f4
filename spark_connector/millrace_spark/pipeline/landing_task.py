"""Landing one offset range: the task that runs on an executor.

Owns the way of a range from fetches to files. Reads what the range says and nothing else, so that
a second run of it writes the same records into files of the same names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from millrace_spark.options import ReadOptions
from millrace_spark.pipeline.directory import LandingDirectory
from millrace_spark.pipeline.errors import RecordUnfit
from millrace_spark.pipeline.file_formats import TEXT_FORMATS, Writer, as_text, open_writer
from millrace_spark.pipeline.ledger import Shape
from millrace_spark.pipeline.partition_paths import cut
from millrace_spark.pipeline.record_columns import record_batches, time_column
from millrace_spark.ranges import OffsetRange

HELD_BYTES_MAX = 64 * 1024 * 1024
"""Rows in memory before they are written, over all files of a range: large row groups."""
FILES_MAX = 800
"""Files of one range that are open at once; a process may often have 1,024."""
TOPIC_CHARS_MAX = 150


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of one range."""

    records: int = 0
    size_bytes: int = 0
    """Of the files."""
    files: int = 0

    def encode(self) -> str:
        """As text, for a mark."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Landed | None:
        """None for a mark that a power cut has spoiled."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class LandingTask:
    """All that an executor needs to know to land ranges of one landing."""

    directory: LandingDirectory
    landing: int
    shape: Shape
    options: ReadOptions

    def land(self, index: int, wanted: OffsetRange) -> Landed:
        """Writes the files of a range and marks it as done.

        Raises what `read_range` does, `RecordUnfit` and `OSError`.
        """
        with ExitStack() as staged:
            files = _Files(self.directory, self.shape, staged)
            records = 0
            time = time_column(self.shape)
            try:
                for batch in record_batches(wanted, self.options, self.shape):
                    records += batch.num_rows
                    for path, rows in cut(batch, self.shape.partition_by, time=time):
                        files.add(path, rows)
                size_bytes = files.publish(file_name(wanted, self.shape.format))
            except RecordUnfit as error:
                raise RecordUnfit(f"{wanted}: {error}") from error
        landed = Landed(records, size_bytes, len(files))
        self.directory.mark(self.landing, index, landed.encode())
        return landed


def file_name(wanted: OffsetRange, file_format: str) -> str:
    """The name of the file of a range; sorts by offset within a partition.

    Begins with `part-`, because readers pass by names that begin with `_` or `.`, as a topic's may.
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
    held: list[pa.RecordBatch]
    writer: Writer | None = None


class _Files:
    """The files of one range, by directory; rows are held until there are many."""

    def __init__(self, directory: LandingDirectory, shape: Shape, staged: ExitStack) -> None:
        self._directory = directory
        self._shape = shape
        self._staged = staged
        self._files: dict[str, _File] = {}
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._files)

    def add(self, path: str, rows: pa.RecordBatch) -> None:
        """Takes rows for the file in a directory."""
        found = self._files.get(path)
        if found is None:
            if len(self._files) == FILES_MAX:
                raise RecordUnfit(
                    f"its records belong into more than {FILES_MAX} directories; give "
                    "--partition-by columns with fewer values, or a smaller --max-partition-bytes"
                )
            file, staged = self._staged.enter_context(self._directory.staged())
            found = self._files[path] = _File(file, staged, [])
        found.held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes > HELD_BYTES_MAX:
            self._write_held()

    def publish(self, name: str) -> int:
        """Ends and names all files; returns their bytes."""
        self._write_held()
        size_bytes = 0
        for path, each in self._files.items():
            assert each.writer is not None
            each.writer.close()
            size_bytes += each.file.tell()
            self._directory.publish(each.file, each.staged, f"{path}/{name}" if path else name)
        return size_bytes

    def _write_held(self) -> None:
        for each in self._files.values():
            if not each.held:
                continue
            table = pa.Table.from_batches(each.held)
            if self._shape.format in TEXT_FORMATS:
                table = as_text(table)
            if each.writer is None:
                each.writer = open_writer(self._shape.format, each.file, table.schema)
            each.writer.write_table(table)
            each.held = []
        self._held_bytes = 0


def land_rows(
    batches: Iterator[pa.RecordBatch],
    *,
    task: LandingTask,
    todo: Sequence[tuple[int, OffsetRange]],
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: places in `todo` come in, what became of each goes out as `LANDED`."""
    for batch in batches:
        for place in batch.column(0).to_pylist():
            index, wanted = todo[place]
            row = {"range_index": index, **asdict(task.land(index, wanted))}
            yield pa.RecordBatch.from_pylist([row], schema=LANDED)


LANDED = pa.schema(
    [(name, pa.int64()) for name in ("range_index", "records", "size_bytes", "files")]
)
LANDED_DDL = "range_index long, records long, size_bytes long, files long"
