"""Deduplication of records that a stream wrote, by the headers that the writer adds.

Owns the names of the headers and the rule. Duplicates come from a task that Spark retried, or from
a micro-batch that Spark repeated after a restart. Both keep their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUERY = "millrace.query"
"""The id of the streaming query, which its checkpoint keeps across restarts."""
BATCH = "millrace.batch"
"""The number of the micro-batch, in decimal."""
TASK = "millrace.task"
"""The number of the task within the micro-batch, in decimal."""
ATTEMPT = "millrace.attempt"
"""The id of an attempt of the task; ids sort in the order of the attempts."""
HEADERS = (QUERY, BATCH, TASK, ATTEMPT)


def without_duplicates(frame: DataFrame) -> DataFrame:
    """The rows of a batch read, without rows that a stream wrote more than once.

    A failed attempt of a task wrote a part of the rows of the successful one. So the result has,
    of each task of each micro-batch, the attempt with the most records, and the latest of several
    with as many. The order of rows does not matter. Rows without the headers are all in the result.

    This needs tasks that produce the same rows when Spark runs them again: no random numbers, no
    clock. The frame must have all columns of the read, with `includeHeaders`, and all partitions of
    a topic. Filter the result, not the frame.

    Raises `SchemaError` for a frame without `headers`, and for a stream, where a later attempt may
    come after an earlier one was emitted.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    if frame.isStreaming:
        raise SchemaError(
            "without_duplicates: a stream cannot know which attempt is complete; read the topic "
            "in batch, or use dropDuplicatesWithinWatermark with a key of your own"
        )
    if "headers" not in frame.columns:
        raise SchemaError(
            "without_duplicates: the frame has no headers; read them with "
            '.option("includeHeaders", "true")'
        )
    query, batch, task, attempt = (_header(frame, name) for name in HEADERS)
    # A record without these headers is a task of its own, so that no window holds all of them.
    alone = sql.when(query.isNull(), sql.monotonically_increasing_id())
    task_id = sql.struct(frame["topic"], query, batch, task, alone)
    tagged = frame.withColumns({_TASK_ID: task_id, _ATTEMPT: attempt})
    counted = tagged.withColumn(
        _COUNT, sql.count(sql.lit(1)).over(Window.partitionBy(_TASK_ID, _ATTEMPT))
    )
    rank = sql.struct(sql.col(_COUNT), sql.col(_ATTEMPT))
    best = sql.max(rank).over(Window.partitionBy(_TASK_ID))
    kept = counted.withColumn(_BEST, best).where(rank.eqNullSafe(sql.col(_BEST)))
    return kept.drop(_TASK_ID, _ATTEMPT, _COUNT, _BEST)


_TASK_ID = "__millrace_task"
_ATTEMPT = "__millrace_attempt"
_COUNT = "__millrace_count"
_BEST = "__millrace_best"


def _header(frame: DataFrame, name: str) -> Column:
    """The text of a header of each row: the last of that name, because the writer appends it."""
    from pyspark.sql import functions as sql

    named = sql.filter(frame["headers"], lambda header: header["key"] == name)
    return sql.try_element_at(named, sql.lit(-1))["value"].cast("string")
