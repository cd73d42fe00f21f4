"""The stream write, as Spark's Python Data Source API sees it.

Owns the headers by which a reader finds duplicates (`deduplication`). `row_writer` writes the rows.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from millrace_spark.errors import message_first
from millrace_spark.options.write_options import WriteOptions, parse_write_options
from millrace_spark.worker_memory import worker_memory
from millrace_spark.writing.deduplication import ATTEMPT, BATCH, QUERY, TASK
from millrace_spark.writing.writer import columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from millrace.records import Headers
    from millrace_spark.writing.row_writer import Tally


@dataclass(frozen=True)
class WrittenInBatch(WriterCommitMessage):
    """The message of a task to the driver: all of its rows are acked."""

    tally: Tally
    query_id: str
    batch_id: int


class MillraceStreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch to topics, at least once, with headers on every record.

    Spark retries a failed task, and repeats a micro-batch that its checkpoint does not have, with
    the same query id and batch id. The commit of a micro-batch does nothing.
    """

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenInBatch:
        """Writes the rows of one task of one micro-batch; returns when all are acked."""
        from millrace_spark.writing.row_writer import write_rows

        query_id = _property("sql.streaming.queryId")
        batch_id = int(_property("streaming.sql.batchId"))
        headers = deduplication_headers(query_id, batch_id, _context().partitionId(), new_attempt())
        with message_first(), worker_memory():
            tally = write_rows(iterator, self._columns, self._options, headers=headers)
            return WrittenInBatch(tally, query_id, batch_id)


def make_stream_writer(options: Mapping[str, str], schema: StructType) -> MillraceStreamWriter:
    """A writer of micro-batches with that schema. Raises `OptionError` and `SchemaError`.

    The output mode `complete` appends the whole result each time, as with Kafka's sink.
    """
    write = parse_write_options(options, is_stream=True)
    return MillraceStreamWriter(write, columns_of(schema, write))


def deduplication_headers(query_id: str, batch_id: int, task: int, attempt: str) -> Headers:
    """The headers that identify the attempt that wrote a record."""
    return (
        (QUERY, query_id.encode()),
        (BATCH, b"%d" % batch_id),
        (TASK, b"%d" % task),
        (ATTEMPT, attempt.encode()),
    )


def new_attempt() -> str:
    """A unique id that sorts behind those of earlier attempts.

    Spark's own attempt numbers restart with the application.
    """
    return f"{time.time_ns():016x}-{secrets.token_hex(4)}"


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a stream is written by tasks of Spark only")
    return context


def _property(name: str) -> str:
    found = _context().getLocalProperty(name)
    if found is None:
        raise RuntimeError(
            f"Spark does not set {name}, which deduplication needs; use Spark 4.2 to 4.x"
        )
    return str(found)
