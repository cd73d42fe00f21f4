"""The format `millrace`, as Spark's Python Data Source API sees it.

Owns the name and the entry points. Spark imports this module in every Python process that looks for
formats, so each entry point imports its own needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from millrace_spark.errors import message_first
from millrace_spark.worker_memory import worker_memory

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from millrace_spark.reading.reader import MillraceReader
    from millrace_spark.streaming.stream_reader import MillraceStreamReader
    from millrace_spark.writing.stream_writer import MillraceStreamWriter
    from millrace_spark.writing.writer import MillraceWriter


class MillraceSource(DataSource):
    """`spark.read.format("millrace")`; `options.ReadOptions` has its options.

    Spark finds it through the module `pyspark_millrace`. If another such module is broken, Spark
    finds none of them; then call `spark.dataSource.register(MillraceSource)`.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "millrace"

    def schema(self) -> str:
        """The columns of a read without a user's schema; `load()` needs no broker."""
        from millrace_spark.reading.schema import schema_of

        with message_first(), worker_memory():
            return schema_of(self.options)

    def reader(self, schema: StructType) -> MillraceReader:
        """A batch reader of the columns of `schema`."""
        from millrace_spark.reading.reader import make_reader

        with message_first():
            return make_reader(self.options, schema)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> MillraceStreamReader:
        """A reader of micro-batches; a stream has some options more than a batch read."""
        from millrace_spark.streaming.stream_reader import make_stream_reader

        with message_first():
            return make_stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> MillraceWriter:
        """A writer of frames with that schema; `options.WriteOptions` has its options."""
        from millrace_spark.writing.writer import make_writer

        with message_first(), worker_memory():
            return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> MillraceStreamWriter:
        """A writer of micro-batches; `overwrite` is the output mode `complete`."""
        from millrace_spark.writing.stream_writer import make_stream_writer

        with message_first():
            return make_stream_writer(self.options, schema)
