"""The Spark job that writes ranges: one task for each, on the executors of the session.

Owns the job, and the conversion of Spark's error to that of the task. Uses only interfaces that
Spark Connect has too.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from millrace.errors import MillraceError
from millrace_spark.pipeline.directory import ImportDirectory
from millrace_spark.pipeline.errors import JobFailed
from millrace_spark.pipeline.executor_wait import executor_wait
from millrace_spark.pipeline.ledger import Ledger
from millrace_spark.pipeline.progress import NoProgress, Progress
from millrace_spark.pipeline.range_task import (
    RANGE_RESULT_DDL,
    RangeResult,
    RangeTask,
    write_ranges,
)
from millrace_spark.pipeline.topic_log import TopicLog
from millrace_spark.reading.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The last line of a worker's traceback, which the JVM's stack follows.
_RAISED = re.compile(
    r"^(millrace[\w.]*)\.(\w+): (.*?)(?=\n\s*\n|\n\s*at |\s*SQLSTATE: |\Z)",
    re.MULTILINE | re.DOTALL,
)

_PYTHON = "PYSPARK_PYTHON must name the same Python, with millrace[spark], on every machine"
_FAULTS = (
    (
        re.compile(r"^ModuleNotFoundError: No module named '((?:millrace|pyarrow|numpy)\w*)", re.M),
        f"the Python of Spark's workers has no {{}}: {_PYTHON}",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH\].*?version: ([\d.]+) than that in driver: ([\d.]+)"),
        f"Spark's workers run Python {{}}, and the driver runs Python {{}}: {_PYTHON}",
    ),
    (
        re.compile(r'Cannot run program "([^"]*)"'),
        f"Spark's workers have no program {{}}: {_PYTHON}",
    ),
)
"""What is wrong with the Python of a cluster's machines, and the remedy."""


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """Writes ranges as the tasks of one Spark job."""

    spark: Callable[[], SparkSession]
    """Returns the session, and starts it for the first job."""
    directory: ImportDirectory
    log: TopicLog
    progress: Progress = field(default_factory=NoProgress)

    def __call__(self, ledger: Ledger, ranges: Mapping[int, OffsetRange]) -> dict[int, RangeResult]:
        """Raises the error of the failed task, or `JobFailed`."""
        assert ledger.batch is not None
        batch = ledger.batch
        options = self.log.read_options(batch.spans)
        task = RangeTask(self.directory, batch.number, ledger.batch_layout, options)
        # Row n of `spark.range` is the only one of Spark's partition n: one range is one task.
        work = partial(write_ranges, task=task, todo=tuple(ranges.items()))
        spark = self.spark()
        job = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(work, RANGE_RESULT_DDL)
        try:
            with executor_wait(spark, self.progress.warning):
                rows = job.collect()
        except Exception as error:
            raise error_of_task(error) from error
        results = {row.range_index: RangeResult.decode(row.result) for row in rows}
        return {index: result for index, result in results.items() if result is not None}


def error_of_task(error: Exception) -> Exception:
    """The error of the task, from the text of Spark's error; the pipeline's errors are returned."""
    if isinstance(error, MillraceError | OSError):
        return error
    raised = _RAISED.findall(str(error))
    if not raised:
        for fault, sentence in _FAULTS:
            if (found := fault.search(str(error))) is not None:
                return JobFailed(sentence.format(*found.groups()))
        return JobFailed(f"{type(error).__name__}: {first_line(error)}")
    module, name, message = raised[-1]
    try:
        kind = getattr(importlib.import_module(module), name)
        if issubclass(kind, MillraceError):
            made: Exception = kind(message)
            return made
    except (ImportError, AttributeError, TypeError):
        pass
    return JobFailed(f"{name}: {message}")


def first_line(error: Exception) -> str:
    """What Spark says before a plan or a stack."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
