"""The format `millrace`, as Spark's Python Data Source API sees it.

Owns the name and the entry points. Imported by every Python process in which Spark looks for
formats, so it imports neither the clients' I/O nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from millrace_spark.options import parse_read_options
from millrace_spark.schema import DDL, check_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from millrace_spark.reader import MillraceReader


class MillraceSource(DataSource):
    """`spark.read.format("millrace")`; options are `options.ReadOptions`.

    Found by Spark through the module `pyspark_millrace`. Where another module of that kind is
    broken and hides it: `spark.dataSource.register(MillraceSource)`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        """Checks the options, so that `load()` fails and not the first action."""
        super().__init__(options)
        self._read_options = parse_read_options(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "millrace"

    def schema(self) -> str:
        """The same for every topic, so that `load()` needs no broker."""
        return DDL

    def reader(self, schema: StructType) -> MillraceReader:
        """A reader of the columns of `schema`: all, or those the user named."""
        from millrace_spark.reader import MillraceReader

        columns = check_columns(
            (field.name, field.dataType.simpleString(), _is_nullable(field))
            for field in schema.fields
        )
        return MillraceReader(self._read_options, columns)


def _is_nullable(field: StructField) -> bool:
    """Whether the field and all within it may be null; a type's short name does not say."""
    return field.nullable and "false" not in field.dataType.json()
