"""The headers that mark what a stream wrote, and how a reader drops what was written twice.

Owns the names of the marks and the rule. Source of the repeats: a task that Spark ran again, or a
micro-batch that it ran again after a restart, under the ids that it had before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace_spark.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUERY = "millrace.query"
"""The id of the streaming query; its checkpoint keeps it over restarts."""
BATCH = "millrace.batch"
"""The number of the micro-batch, in decimal."""
TASK = "millrace.task"
"""The number of the task within the micro-batch, in decimal."""
ATTEMPT = "millrace.attempt"
"""One attempt of the task; later ones sort behind earlier ones."""
MARKS = (QUERY, BATCH, TASK, ATTEMPT)


def without_repeats(frame: DataFrame) -> DataFrame:
    """The rows of a batch read, without those that a stream wrote more than once.

    An attempt of a task that failed wrote a part of what the one that succeeded wrote. So, of the
    attempts of each task of each micro-batch, the one with the most records is kept, and the
    latest where several have as many; rows in another order do no harm. Rows that no stream wrote
    are all kept. Holds as long as a task that is run again has the same rows again: no random
    numbers, no clock. The frame must have all columns that were read, with `includeHeaders`, of
    all partitions of a topic: filter afterwards.

    Raises `SchemaError` for a frame without `headers` or that is a stream, whose earlier attempts
    may be gone before a later one is seen.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    if frame.isStreaming:
        raise SchemaError(
            "without_repeats: a stream cannot know which attempt will be whole; read the topic in "
            "batch, or drop repeats by a key of your own with dropDuplicatesWithinWatermark"
        )
    if "headers" not in frame.columns:
        raise SchemaError(
            "without_repeats: the marks are headers; read them with "
            '.option("includeHeaders", "true")'
        )
    query, batch, task, attempt = (_mark(frame, name) for name in MARKS)
    # Records without marks are each a task of their own, or one window would hold all of them.
    alone = sql.when(query.isNull(), sql.monotonically_increasing_id())
    work = sql.struct(frame["topic"], query, batch, task, alone)
    marked = frame.withColumns({_WORK: work, _ATTEMPT: attempt})
    counted = marked.withColumn(
        _FULLNESS, sql.count(sql.lit(1)).over(Window.partitionBy(_WORK, _ATTEMPT))
    )
    standing = sql.struct(sql.col(_FULLNESS), sql.col(_ATTEMPT))
    best = sql.max(standing).over(Window.partitionBy(_WORK))
    kept = counted.withColumn(_BEST, best).where(standing.eqNullSafe(sql.col(_BEST)))
    return kept.drop(_WORK, _ATTEMPT, _FULLNESS, _BEST)


_WORK = "__millrace_work"
_ATTEMPT = "__millrace_attempt"
_FULLNESS = "__millrace_fullness"
_BEST = "__millrace_best"


def _mark(frame: DataFrame, name: str) -> Column:
    """The text of one mark of each row; the last header of that name, as marks come behind."""
    from pyspark.sql import functions as sql

    named = sql.filter(frame["headers"], lambda header: header["key"] == name)
    return sql.try_element_at(named, sql.lit(-1))["value"].cast("string")
