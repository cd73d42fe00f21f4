"""Threads that run blocking calls for one event loop.

Owns the threads and the queue of calls. A flush waits for two of its hand-overs, there and back, so
both are as short as they can be: `concurrent.futures` makes a second future with a lock and a
condition for each call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from millrace_server.loop.completion import Completion

T = TypeVar("T")

_Call = tuple[Completion[Any], Callable[..., Any], tuple[Any, ...]]


class WorkerThreads:
    """At most `count` threads, started when they are needed. Belongs to the running loop.

    Calls begin in the order of `submit`. One whose future is cancelled before it begins is not
    made.
    """

    def __init__(self, count: int, *, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._name = name
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0

    def submit(self, work: Callable[..., T], *args: Any) -> Completion[T]:
        """Runs `work(*args)` in a thread. Raises `RuntimeError` after `close`."""
        if self._count == 0:
            raise RuntimeError("the worker threads are closed")
        completion: Completion[T] = Completion()
        self._unfinished += 1
        if len(self._threads) < min(self._unfinished, self._count):
            thread = threading.Thread(
                target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._queue.put((completion, work, args))
        return completion

    def close(self) -> None:
        """Waits for all calls and ends the threads."""
        self._count = 0
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            completion, work, args = call
            result, error = None, None
            if not completion.cancelled():
                try:
                    result = work(*args)
                except BaseException as raised:
                    error = raised
            try:
                self._loop.call_soon_threadsafe(self._finish, completion, result, error)
            except RuntimeError:
                # The loop is closed, and no caller waits any more.
                return
            # An idle thread keeps nothing alive.
            del call, completion, work, args, result, error

    def _finish(
        self, completion: Completion[Any], result: Any, error: BaseException | None
    ) -> None:
        self._unfinished -= 1
        if error is None:
            completion.complete(result)
        else:
            completion.fail(error)
