"""The batch write, as Spark's Python Data Source API sees it.

Owns the writer that Spark pickles to the executors, and the message from each task. `row_writer`
writes the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from millrace_spark.errors import OptionError, message_first
from millrace_spark.options.write_options import WriteOptions, parse_write_options
from millrace_spark.worker_memory import worker_memory
from millrace_spark.writing.write_schema import check_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from millrace_spark.writing.row_writer import Tally

_log = logging.getLogger("millrace.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The message of a task to the driver: all of its rows are acked."""

    tally: Tally


class MillraceWriter(DataSourceArrowWriter):
    """Appends a frame's rows to topics: each once if no task fails, else at least once.

    An append cannot be undone. Records of a failed task stay, and the retry sends them again.
    """

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one task; returns when all are acked."""
        from millrace_spark.writing.row_writer import write_rows

        with message_first(), worker_memory():
            return Written(write_rows(iterator, self._columns, self._options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Logs the totals; all rows are already acked."""
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
