"""What a worker process of Spark keeps of its memory from one task to the next.

Spark's daemon gives a Python worker one task after the other, and has it look for garbage in all
that is imported after each of them: 45 to 90 ms of CPU time for the modules of Spark, Arrow and
this client. And a reader takes 48 MiB for its fetches and some for its columns, which the C library
gives back to the kernel behind it, and the kernel clears again, page by page, for the next one.
Together that was a sixth of the CPU time of a query of half a gigabyte.

Owns two settings of the process, each made once. Does nothing outside of workers that are used
again.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

KEPT_BYTES_MAX: Final = 96 << 20
"""Free memory that stays at the end of a thread's heap; half of it is a reader's fetches."""
_OWN_MAPPING_BYTES_MIN: Final = 32 << 20
"""What is larger is no part of the heap and given back at once; the most that can be set."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_SET_BY_USER: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@contextmanager
def worker_memory() -> Iterator[None]:
    """Around a task, or what a task is planned by, in whatever process it runs."""
    # Spark's own sign, for the daemon, that workers are used again.
    if "SPARK_REUSE_WORKER" not in os.environ:
        yield
        return
    _keep_freed_memory()
    yield
    # Not if it failed: what an error still holds would be kept for good.
    _keep_modules()


@cache
def _keep_freed_memory() -> None:
    """Has the C library keep what is freed, up to `KEPT_BYTES_MAX`; glibc only."""
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
    """Takes what is there out of the search for garbage, once there is none among it.

    With the modules goes what the first task still holds; of that, cycles will never be found.
    """
    gc.collect()
    gc.freeze()
