"""The stream write, as Spark's Python Data Source API sees it.

Owns the marks that let a reader tell repeats from records: `repeats` drops them. The rows are
`writing`'s.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from millrace_spark.errors import sentence_first
from millrace_spark.repeats import ATTEMPT, BATCH, QUERY, TASK
from millrace_spark.worker_memory import worker_memory
from millrace_spark.write_options import WriteOptions, parse_write_options
from millrace_spark.writer import columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from millrace.records import Headers
    from millrace_spark.writing import Tally


@dataclass(frozen=True)
class WrittenInBatch(WriterCommitMessage):
    """What one task tells the driver: all of it is acked."""

    tally: Tally
    query_id: str
    batch_id: int


class MillraceStreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch to topics, at least once, and marks every record.

    Spark runs a task again that failed, and a whole micro-batch again that it has not noted as
    done, under the same query id and batch id. Nothing is left to do when a batch is committed.
    """

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenInBatch:
        """Writes the rows of one task of one micro-batch; returns when all are acked."""
        from millrace_spark.writing import write_rows

        query_id = _property("sql.streaming.queryId")
        batch_id = int(_property("streaming.sql.batchId"))
        marks = marks_of(query_id, batch_id, _context().partitionId(), new_attempt())
        with sentence_first(), worker_memory():
            tally = write_rows(iterator, self._columns, self._options, marks=marks)
            return WrittenInBatch(tally, query_id, batch_id)


def make_stream_writer(options: Mapping[str, str], schema: StructType) -> MillraceStreamWriter:
    """A writer of micro-batches with that schema. Raises `OptionError` and `SchemaError`.

    The output mode `complete` appends the whole result each time, as with Kafka's sink.
    """
    write = parse_write_options(options, is_stream=True)
    return MillraceStreamWriter(write, columns_of(schema, write))


def marks_of(query_id: str, batch_id: int, task: int, attempt: str) -> Headers:
    """The headers that say which attempt of which task of which micro-batch wrote a record."""
    return (
        (QUERY, query_id.encode()),
        (BATCH, b"%d" % batch_id),
        (TASK, b"%d" % task),
        (ATTEMPT, attempt.encode()),
    )


def new_attempt() -> str:
    """A name that no other attempt has, and that sorts behind those of earlier ones.

    Spark's own numbers of attempts begin anew with each start of the application.
    """
    return f"{time.time_ns():016x}-{secrets.token_hex(4)}"


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a stream is written by Spark's tasks, and this is none")
    return context


def _property(name: str) -> str:
    found = _context().getLocalProperty(name)
    if found is None:
        raise RuntimeError(f"Spark sets no {name}, by which a reader knows repeats; use 4.2 to 4.x")
    return str(found)
