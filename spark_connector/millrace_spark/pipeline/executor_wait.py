"""A job that waits for executors: a warning, because Spark's own warning is switched off.

Owns the question whether a job has begun, and the sentence. Spark Connect has no answer to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

WAIT_S = 15.0
"""As long as Spark waits before its own warning."""
POLL_S = 0.5


@contextmanager
def executor_wait(spark: SparkSession, warn: Callable[[str], None]) -> Iterator[None]:
    """Calls `warn` once if no task of the block's job has begun after `WAIT_S`."""
    context = _context(spark)
    if context is None:
        yield
        return
    is_over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(context, warn, is_over), name="executor-wait", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _context(spark: SparkSession) -> SparkContext | None:
    try:
        return spark.sparkContext
    except Exception:  # Spark Connect: pyspark has several errors for it
        return None


def _watch(context: SparkContext, warn: Callable[[str], None], is_over: threading.Event) -> None:
    waited_s = 0.0
    while not is_over.wait(POLL_S):
        waited_s += POLL_S
        if _has_begun(context):
            return
        if waited_s >= WAIT_S:
            warn(_sentence(context, waited_s))
            return


def _has_begun(context: SparkContext) -> bool:
    tracker = context.statusTracker()
    for job_id in tracker.getActiveJobsIds():
        job = tracker.getJobInfo(job_id)
        for stage_id in () if job is None else job.stageIds:
            stage: Any = tracker.getStageInfo(stage_id)
            if stage is not None and (
                stage.numActiveTasks or stage.numCompletedTasks or stage.numFailedTasks
            ):
                return True
    return False


def _sentence(context: SparkContext, waited_s: float) -> str:
    conf = context.getConf()
    memory = conf.get("spark.executor.memory", "1g")
    cores = conf.get("spark.executor.cores", "all of a worker's")
    return (
        f"no executor has begun a task for {waited_s:.0f} s: {context.master} has no worker, or "
        f"none with room for an executor of spark.executor.memory={memory} and "
        f"spark.executor.cores={cores}. This waits until there is one; ask for less with --conf, "
        "or end it with ^C"
    )
