"""The format `millrace`, as Spark's Python Data Source API sees it.

Owns the name and the entry points. Imported by every Python process in which Spark looks for
formats, so each entry point imports what it needs itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from millrace_spark.errors import sentence_first
from millrace_spark.worker_memory import worker_memory

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from millrace_spark.reader import MillraceReader
    from millrace_spark.stream_reader import MillraceStreamReader
    from millrace_spark.stream_writer import MillraceStreamWriter
    from millrace_spark.writer import MillraceWriter


class MillraceSource(DataSource):
    """`spark.read.format("millrace")`; the options of a read are `options.ReadOptions`.

    Found by Spark through the module `pyspark_millrace`. Where another module of that kind is
    broken and hides it: `spark.dataSource.register(MillraceSource)`.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "millrace"

    def schema(self) -> str:
        """The columns of a read without a schema of its own; `load()` needs no broker."""
        from millrace_spark.schema import schema_of

        with sentence_first(), worker_memory():
            return schema_of(self.options)

    def reader(self, schema: StructType) -> MillraceReader:
        """A reader of the columns of `schema`: all, or those the user named."""
        from millrace_spark.reader import make_reader

        with sentence_first():
            return make_reader(self.options, schema)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> MillraceStreamReader:
        """A reader of micro-batches; the options are those of a read, and some of a stream's."""
        from millrace_spark.stream_reader import make_stream_reader

        with sentence_first():
            return make_stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> MillraceWriter:
        """A writer of frames with that schema; the options are `write_options.WriteOptions`."""
        from millrace_spark.writer import make_writer

        with sentence_first(), worker_memory():
            return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> MillraceStreamWriter:
        """A writer of micro-batches; `overwrite` is the output mode `complete`."""
        from millrace_spark.stream_writer import make_stream_writer

        with sentence_first():
            return make_stream_writer(self.options, schema)
