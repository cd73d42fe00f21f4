"""Landing ranges in Spark: one task for each, on whatever executors the session has.

Owns the job, and turning Spark's failure into the one of the task. Uses what Spark Connect has too.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from millrace.errors import MillraceError
from millrace_spark.pipeline.directory import LandingDirectory
from millrace_spark.pipeline.errors import JobFailed
from millrace_spark.pipeline.landing_task import LANDED_DDL, Landed, LandingTask, land_rows
from millrace_spark.pipeline.ledger import Ledger
from millrace_spark.pipeline.topic_log import TopicLog
from millrace_spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The last line of a worker's traceback, which the JVM's stack follows.
_RAISED = re.compile(
    r"^(millrace[\w.]*)\.(\w+): (.*?)(?=\n\s*\n|\n\s*at |\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """Lands ranges as the tasks of one Spark job."""

    spark: Callable[[], SparkSession]
    """Makes the session, or hands out the one there is; called for each job."""
    directory: LandingDirectory
    log: TopicLog

    def __call__(self, ledger: Ledger, ranges: Mapping[int, OffsetRange]) -> dict[int, Landed]:
        """Raises the error of the task that failed, or `JobFailed`."""
        assert ledger.landing is not None
        landing = ledger.landing
        options = self.log.read_options(landing.spans)
        task = LandingTask(self.directory, landing.number, ledger.shape, options)
        # Row n of `spark.range` is the only one of Spark's partition n: one range is one task.
        work = partial(land_rows, task=task, todo=tuple(ranges.items()))
        job = self.spark().range(0, len(ranges), 1, len(ranges)).mapInArrow(work, LANDED_DDL)
        try:
            rows = job.collect()
        except Exception as error:
            raise error_of_task(error) from error
        return {row.range_index: Landed(row.records, row.size_bytes, row.files) for row in rows}


def error_of_task(error: Exception) -> Exception:
    """What the task raised, found in the text that Spark has made of it; ours stay as they are."""
    if isinstance(error, MillraceError | OSError):
        return error
    raised = _RAISED.findall(str(error))
    if not raised:
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        return JobFailed(f"{type(error).__name__}: {first}")
    module, name, sentence = raised[-1]
    try:
        found = getattr(importlib.import_module(module), name)
        if issubclass(found, MillraceError):
            made: Exception = found(sentence)
            return made
    except (ImportError, AttributeError, TypeError):
        pass
    return JobFailed(f"{name}: {sentence}")
