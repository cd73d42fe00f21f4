"""A private event loop in a daemon thread, one per process, for code that has none.

Owns the thread and the way across. A process that was forked has the parent's clients but not its
thread: using them is refused, and new ones get a new thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from millrace.errors import Closed

T = TypeVar("T")

_lock = threading.Lock()
_current: LoopThread | None = None


class LoopThread:
    """The loop of one process; get it with `loop_thread`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="millrace-sync", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for it; interrupting the wait cancels it."""
        if self.pid != os.getpid():
            work.close()
            raise Closed(
                "this client was made before the process forked; make a new one in each process"
            )
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a synchronous client cannot be used from a callback of its own")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def loop_thread() -> LoopThread:
    """This process's loop thread; started when first asked for."""
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = LoopThread()
        return _current


def _forget_after_fork() -> None:
    # The lock may have been held by another thread at the fork.
    global _lock, _current
    _lock = threading.Lock()
    _current = None


os.register_at_fork(after_in_child=_forget_after_fork)
