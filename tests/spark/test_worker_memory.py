"""Memory that a worker process keeps between tasks, in processes as Spark starts them."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from typing import Any

import pytest

needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep"
)

TASKS = """
import ctypes, gc, resource
from millrace_spark.worker_memory import worker_memory

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: every page has its fault

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def task():
    buffers = [bytearray(8 << 20) for _ in range(3)]
    with worker_memory():
        del buffers

with worker_memory():
    task()
before = faults()
for _ in range(10):
    task()
print(faults() - before, gc.get_freeze_count())
"""
PAGES = 3 * (8 << 20) // resource.getpagesize()


def _run(program: str, **environment: str) -> str:
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SPARK_REUSE_WORKER", "MALLOC_", "GLIBC_TUNABLES", "PYTHONMALLOC"))
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@needs_glibc
def test_tasks_use_the_memory_of_the_task_before() -> None:
    faults, frozen = map(int, _run(TASKS, SPARK_REUSE_WORKER="1").split())
    assert faults < PAGES
    assert frozen > 1000


@needs_glibc
@pytest.mark.parametrize("environment", [{}, {"MALLOC_TRIM_THRESHOLD_": "0"}])
def test_a_process_that_is_not_used_again_or_set_otherwise_gives_it_back(
    environment: dict[str, str],
) -> None:
    reused = {"SPARK_REUSE_WORKER": "1"} if environment else {}
    faults, frozen = map(int, _run(TASKS, **environment, **reused).split())
    assert faults > 5 * PAGES
    assert (frozen > 0) == bool(reused)


FAILING = """
import gc, weakref
from millrace_spark.worker_memory import worker_memory

class Node:
    def __init__(self):
        self.itself = self

gc.disable()
garbage = weakref.ref(Node())
try:
    with worker_memory():
        raise ValueError
except ValueError:
    print(gc.get_freeze_count())
with worker_memory():
    pass
frozen = gc.get_freeze_count()
print(frozen > 0, garbage() is None)
later = [Node() for _ in range(1000)]
with worker_memory():
    pass
print(gc.get_freeze_count() <= frozen)
"""


def test_modules_are_kept_once_and_neither_garbage_nor_anything_of_a_task_that_failed() -> None:
    assert _run(FAILING, SPARK_REUSE_WORKER="1").split() == ["0", "True", "True", "True"]


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_spark_tells_a_worker_that_it_is_used_again(spark: Any) -> None:
    found = spark.sparkContext.range(1).map(lambda _: os.environ.get("SPARK_REUSE_WORKER"))
    assert found.collect() == ["1"]
