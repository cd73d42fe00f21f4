"""Spark reads topics: `spark.read.format("millrace")`, with no jar and no registration.

    from millrace_spark import session

    spark = session()
    clicks = (
        spark.read.format("millrace")
        .option("millrace.servers", "localhost:9092")
        .option("subscribe", "clicks")
        .load()
    )

The options are `options.ReadOptions`, the columns `schema.COLUMNS`. Importing this package imports
neither pyspark nor pyarrow. Needs `pip install 'millrace[spark]'` and Java 17 or newer.
"""

from millrace_spark.errors import (
    DataLost,
    JavaNotFound,
    OptionError,
    ReadTimedOut,
    RowRefused,
    SchemaError,
)
from millrace_spark.repeats import without_repeats
from millrace_spark.spark_session import session

__all__ = [
    "DataLost",
    "JavaNotFound",
    "OptionError",
    "ReadTimedOut",
    "RowRefused",
    "SchemaError",
    "session",
    "without_repeats",
]
