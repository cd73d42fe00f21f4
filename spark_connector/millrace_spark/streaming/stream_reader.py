"""The stream reader, as Spark's Python Data Source API sees it.

Owns the adaptation to that interface. One instance plans on the driver, in a process that ends with
the query. Spark pickles another one for the executors, which only reads.

Spark's checkpoint decides where a stream continues. It stores the end of every micro-batch, but not
the start of the first one. So the first micro-batch is empty, and its end is the stream's start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millrace_spark.errors import message_first
from millrace_spark.options.bounds import OFFSET_MAX
from millrace_spark.options.read_options import ReadOptions, parse_read_options
from millrace_spark.reading.reader import MillraceReader, json_fields, wanted_columns
from millrace_spark.streaming.group_progress import GroupProgress
from millrace_spark.streaming.log_client import LogClient
from millrace_spark.streaming.micro_batches import MicroBatches
from millrace_spark.streaming.stream_offsets import Document, StreamOffsets, parse_document

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

WAIT_MS = 250
"""Longest wait for newer offsets. Without it Spark polls 70 times a second. With a longer wait, the
other sources of the query wait too, because Spark polls one source after another."""


def make_stream_reader(options: Mapping[str, str], schema: StructType) -> MillraceStreamReader:
    """A stream reader of the columns of `schema`. Raises `OptionError` and `SchemaError`."""
    read = parse_read_options(options, is_stream=True)
    reader = MillraceReader(read, wanted_columns(schema, read), json_fields(schema, read))
    return MillraceStreamReader(read, reader)


class MillraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; one range of a micro-batch is one task."""

    def __init__(self, options: ReadOptions, reader: MillraceReader) -> None:
        """Opens no connection; `reader` reads the ranges."""
        self._options = options
        self._reader = reader
        self._log = LogClient(options)
        self._batches = MicroBatches(options, self._log)
        self._group: GroupProgress | None = None
        self._is_begun = False
        self._initial: Document | None = None
        self._is_first_batch = False
        self._is_idle = False
        self._skips_wait = False

    def initialOffset(self) -> Document:  # noqa: N802
        """The start of a stream without a checkpoint; every call returns the same."""
        with message_first():
            self._begin()
            if self._initial is None:
                self._initial = self._batches.start().document()
                self._is_first_batch = True
            return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A limit, so that the options' limits apply; Spark replaces it where none applies."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or OFFSET_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Bounds the query by the current ends of the logs."""
        with message_first():
            self._begin()
            self._batches.stop_at_latest()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """The end of the next micro-batch, or `start` if there is nothing to read yet.

        By this call Spark confirms that all micro-batches before `start` are done.
        """
        with message_first():
            self._begin()
            return self._next_end(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Document | None:  # noqa: N802
        """The last known ends of the logs, for the progress of the query."""
        return None if self._batches.latest is None else self._batches.latest.document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch; none for an empty one."""
        with message_first():
            self._begin()
            self._is_first_batch = False
            ranges = self._batches.ranges(parse_document(start), parse_document(end))
            return [InputPartition(found) for found in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range as Arrow batches."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Does no commit: Spark calls this one micro-batch late, and never for the last one.

        `latestOffset` learns the same earlier. If this source had no records for the current
        micro-batch, another source of the query had, so the next poll does not wait.
        """
        self._skips_wait = self._is_idle

    def stop(self) -> None:
        """Disconnects. Spark may end the process without it."""
        self._log.close()
        if self._group is not None:
            self._group.close()

    def _next_end(self, start: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        whole = parse_document(start)
        self._show_progress(whole)
        if self._is_first_batch:
            self._is_first_batch = False
            # The trigger `once` lifts all limits, and an empty micro-batch would be its only one.
            if is_limited:
                return start
        wait_ms = 0 if self._skips_wait else WAIT_MS
        self._skips_wait = False
        end = self._batches.next_end(
            whole.only(self._options.selection.selects), is_limited=is_limited, wait_ms=wait_ms
        )
        self._is_idle = end == whole
        return start if self._is_idle else end.document()

    def _begin(self) -> None:
        if self._is_begun:
            return
        if self._options.commit_group is not None:
            self._group = GroupProgress(self._options.commit_group, self._options)
            self._group.check()
        self._is_begun = True

    def _show_progress(self, done: StreamOffsets) -> None:
        if self._group is not None:
            self._group.commit(done.offsets)
