"""The Spark connector: `spark.read.format("millrace")`, with no jar and no registration.

    from millrace_spark import session

    spark = session()
    clicks = (
        spark.read.format("millrace")
        .option("millrace.servers", "localhost:9092")
        .option("subscribe", "clicks")
        .load()
    )

`options` has the options of a read, and `reading.schema` its columns. Importing this package
imports neither pyspark nor pyarrow. Needs `pip install 'millrace[spark]'` and Java 17 or newer.
"""

from millrace.errors import SchemaError
from millrace_spark.errors import DataLost, JavaNotFound, OptionError, ReadTimedOut, RowRefused
from millrace_spark.spark_session import session
from millrace_spark.writing.deduplication import without_duplicates

__all__ = [
    "DataLost",
    "JavaNotFound",
    "OptionError",
    "ReadTimedOut",
    "RowRefused",
    "SchemaError",
    "session",
    "without_duplicates",
]
