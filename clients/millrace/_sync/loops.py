"""Event loops for code that has none: in a daemon thread, one per process, or in the caller's own.

Owns the thread and the way across. A process that was forked has the parent's clients but not its
thread, and shares its sockets: using them is refused, and new ones get a new loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from millrace._sync.interrupt import Interrupt
from millrace.errors import Closed

T = TypeVar("T")

_FORKED = "this client was made before the process forked; make a new one in each process"
_lock = threading.Lock()
_current: LoopThread | None = None
_of_parents: list[LoopThread] = []
"""Kept: a loop that was running when its process forked must not be thrown away, nor closed."""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes loops: uvloop where there is one, else the standard library."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


class LoopThread:
    """The loop of one process; get it with `loop_thread`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = loop_factory()()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="millrace-sync", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for it; interrupting the wait cancels it."""
        _refuse_after_fork(self.pid, work)
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a synchronous client cannot be used from a callback of its own")
        if sys.is_finalizing():
            # Then daemon threads do not run any more, and a wait for them would not end: by a
            # generator, say, that was never read to its end, and is now to close its clients.
            work.close()
            raise Closed("Python is shutting down; close clients before, best by `with`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            # The error of a call refers to this frame.
            del future

    def later(self, delay_s: float, function: Callable[[], None]) -> None:
        """Calls a function on the loop, some time from now; does not wait. Raises `Closed`."""
        if not is_of_this_process(self.pid):
            raise Closed(_FORKED)
        self._loop.call_soon_threadsafe(self._loop.call_later, delay_s, function)

    def release(self) -> None:
        """A client of it has closed; others may go on."""


class CallerLoop:
    """A loop that runs in the calling thread, during the call only."""

    STEPS: Final = 3
    """Passes of the loop after a call: what it set off, such as asking for the next batch, goes out
    before the caller turns to the one it has."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.RLock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end; interrupting it cancels it."""
        _refuse_after_fork(self.pid, work)
        if _is_in_a_loop():
            work.close()
            raise RuntimeError(
                "a client with background=False cannot be used where an event loop is running"
            )
        with self._lock:
            if self._loop is None:
                # Large frames are received no faster by uvloop, which takes some time to import.
                self._loop = asyncio.new_event_loop()
            loop = self._loop
            task = loop.create_task(self._with_steps(work))
            interrupt = Interrupt(loop, task)
            try:
                with interrupt:
                    return loop.run_until_complete(task)
            except asyncio.CancelledError:
                if interrupt.has_come:
                    raise KeyboardInterrupt from None
                raise
            except BaseException:
                if not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        loop.run_until_complete(task)
                raise
            finally:
                # The error of a call refers to this frame.
                del task, interrupt

    def release(self) -> None:
        """Its client has closed."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.close()

    async def _with_steps(self, work: Coroutine[Any, Any, T]) -> T:
        found = await work
        for _ in range(self.STEPS):
            await asyncio.sleep(0)
        return found


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_of_this_process(pid: int) -> bool:
    """Whether a loop was made here, and not before the process forked."""
    return pid == os.getpid()


def _refuse_after_fork(pid: int, work: Coroutine[Any, Any, Any]) -> None:
    if not is_of_this_process(pid):
        work.close()
        raise Closed(_FORKED)


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
    if _current is not None:
        _of_parents.append(_current)
        _current = None


os.register_at_fork(after_in_child=_forget_after_fork)
