"""The stream reader: what Spark asks of it on the driver, and what tasks read on executors.

Owns the fit to Spark's interface. One instance serves the driver, in a process of its own that ends
with the query; another one is pickled for the executors, reads, and does nothing else.

Spark's checkpoint says where a stream is. It has the end of every micro-batch, but where the first
one begins only in so far as an empty one ends there: so the first one is empty.
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

from millrace_spark.bounds import OFFSET_MAX
from millrace_spark.errors import sentence_first
from millrace_spark.group_progress import GroupProgress
from millrace_spark.log_watch import LogWatch
from millrace_spark.micro_batches import MicroBatches
from millrace_spark.options import ReadOptions, parse_read_options
from millrace_spark.reader import MillraceReader, json_fields, wanted_columns
from millrace_spark.stream_offsets import Document, StreamOffsets, parse_document

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

WAIT_MS = 250
"""How long a question for newer offsets waits. Spark asks again at once, 70 times a second where
nothing waits; but it asks the sources of a query one by one, and each waits for the others."""


def make_stream_reader(options: Mapping[str, str], schema: StructType) -> MillraceStreamReader:
    """A stream reader of the columns of `schema`. Raises `OptionError` and `SchemaError`."""
    read = parse_read_options(options, is_stream=True)
    reader = MillraceReader(read, wanted_columns(schema, read), json_fields(schema, read))
    return MillraceStreamReader(read, reader)


class MillraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; one range of a micro-batch is one task."""

    def __init__(self, options: ReadOptions, reader: MillraceReader) -> None:
        """Connects to nobody yet; `reader` reads the ranges."""
        self._options = options
        self._reader = reader
        self._watch = LogWatch(options)
        self._batches = MicroBatches(options, self._watch)
        self._group: GroupProgress | None = None
        self._is_begun = False
        self._initial: Document | None = None
        self._is_first_batch = False
        self._is_idle = False
        self._is_hurried = False

    def initialOffset(self) -> Document:  # noqa: N802
        """Where a stream without a checkpoint begins; the same however often it is asked."""
        with sentence_first():
            self._begin()
            if self._initial is None:
                self._initial = self._batches.start().document()
                self._is_first_batch = True
            return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Says that our own limits hold; Spark replaces it where none may hold."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or OFFSET_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends when it has read what there is now."""
        with sentence_first():
            self._begin()
            self._batches.stop_at_latest()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """The end of the next micro-batch, or `start` if there is nothing to read yet.

        That Spark asks from `start` says that everything before it is done.
        """
        with sentence_first():
            self._begin()
            return self._next_end(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Document | None:  # noqa: N802
        """The ends of the logs as they were last seen, for the progress of the query."""
        return None if self._batches.latest is None else self._batches.latest.document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch, of which there are none when it is empty."""
        with sentence_first():
            self._begin()
            self._is_first_batch = False
            ranges = self._batches.ranges(parse_document(start), parse_document(end))
            return [InputPartition(found) for found in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range as Arrow batches."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Comes a micro-batch late and never for the last: `latestOffset` knows it earlier.

        If this source has had nothing for the micro-batch under way, another source of the query
        has, and is not to wait for this one.
        """
        self._is_hurried = self._is_idle

    def stop(self) -> None:
        """Disconnects. Spark may end the process without it."""
        self._watch.close()
        if self._group is not None:
            self._group.close()

    def _next_end(self, start: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        whole = parse_document(start)
        self._show_progress(whole)
        if self._is_first_batch:
            self._is_first_batch = False
            # Under the trigger `once`, which lifts all limits, an empty batch would be all.
            if is_limited:
                return start
        wait_ms = 0 if self._is_hurried else WAIT_MS
        self._is_hurried = False
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
