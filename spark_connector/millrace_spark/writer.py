"""The batch write, as Spark's Python Data Source API sees it.

Owns what Spark asks for: a writer that is pickled to the executors, and a message from each task.
The rows are `writing`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from millrace_spark.errors import OptionError, sentence_first
from millrace_spark.worker_memory import worker_memory
from millrace_spark.write_options import WriteOptions, parse_write_options
from millrace_spark.write_schema import check_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from millrace_spark.writing import Tally

_log = logging.getLogger("millrace.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task tells the driver: all of it is acked."""

    tally: Tally


class MillraceWriter(DataSourceArrowWriter):
    """Appends a frame's rows to topics: each once if no task fails, else at least once.

    A record cannot be taken back. What a failed task sent stays, and its next try sends it again.
    """

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one task; returns when all are acked."""
        from millrace_spark.writing import write_rows

        with sentence_first(), worker_memory():
            return Written(write_rows(iterator, self._columns, self._options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Notes how much was written; it was all there before."""
        tallies = [message.tally for message in messages if isinstance(message, Written)]
        _log.info(
            "wrote %d rows, %d bytes of keys and values",
            sum(tally.rows for tally in tallies),
            sum(tally.size_bytes for tally in tallies),
        )


def make_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> MillraceWriter:
    """A writer of frames with that schema. Raises `OptionError` and `SchemaError`."""
    if overwrite:
        raise OptionError(
            "mode", 'a topic is a log and is not overwritten; use .mode("append"), or a new topic'
        )
    write = parse_write_options(options, is_stream=False)
    return MillraceWriter(write, columns_of(schema, write))


def columns_of(schema: StructType, options: WriteOptions) -> tuple[str, ...]:
    """The columns that records are made of. Raises `SchemaError`."""
    fields = ((field.name, field.dataType.simpleString()) for field in schema.fields)
    return check_frame(fields, topic=options.topic)
