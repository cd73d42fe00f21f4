"""The memory that a Spark worker process keeps from one task to the next.

Spark's daemon runs one task after another in a Python worker, with a garbage collection after each.
That costs 45 to 90 ms of CPU time for the modules of Spark, Arrow and this client. And a reader
allocates 48 MiB for its fetches, and more for its columns. The C library returns them to the kernel
after the task, and the kernel clears them again for the next task. Together this is a sixth of the
CPU time of a query of half a gigabyte.

Owns two settings of the process, each made once. Changes nothing in workers that run one task only.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

KEPT_BYTES_MAX: Final = 96 << 20
"""Free memory that stays in a thread's heap; half of it holds a reader's fetches."""
_OWN_MAPPING_BYTES_MIN: Final = 32 << 20
"""Larger blocks are not part of the heap and are returned at once; the largest legal value."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_SET_BY_USER: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@contextmanager
def worker_memory() -> Iterator[None]:
    """Wraps a task, or the planning of tasks, in any process."""
    # Spark sets this variable where workers run several tasks.
    if "SPARK_REUSE_WORKER" not in os.environ:
        yield
        return
    _keep_freed_memory()
    yield
    # Not after a failure: objects that the error refers to would stay for good.
    _keep_modules()


@cache
def _keep_freed_memory() -> None:
    """Lets the C library keep freed memory, up to `KEPT_BYTES_MAX`; glibc only."""
    if any(name in os.environ for name in _SET_BY_USER):
        return
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; another system
        return
    mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES_MIN)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)


@cache
def _keep_modules() -> None:
    """Excludes all current objects from garbage collection, after one collection.

    That includes objects of the first task that are still alive; cycles among them are never freed.
    """
    gc.collect()
    gc.freeze()
