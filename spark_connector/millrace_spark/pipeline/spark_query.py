"""A query of the user, as Spark plans it before it reads a record.

Owns the difference between a query that the user has to correct, and a job that failed.
`spark_tasks` has the errors of jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace_spark.pipeline.errors import JobFailed, QueryRefused
from millrace_spark.pipeline.spark_tasks import error_of_task, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def planned(spark: SparkSession, query: str) -> DataFrame:
    """The result, of which nothing is read yet.

    Raises `QueryRefused` with the place in the text, and the errors of the connector.
    """
    from pyspark.errors import AnalysisException

    try:
        found = spark.sql(query)
        # Spark Connect plans the query when its columns are asked for.
        _ = found.schema
    except AnalysisException as error:
        reason = error_of_task(error)
        if isinstance(reason, JobFailed):
            reason = QueryRefused(f"the query: {first_line(error)}")
        raise reason from error
    return found
