"""The background tasks of one running client, which end together.

Owns the tasks and the report of the first failure. Does not know their work.

`asyncio.TaskGroup` is no choice: when it is cancelled, its frame and its exception refer to each
other, and with them everything that the client holds stays in memory until the garbage collector
runs.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

OnFailed = Callable[[BaseException | None], None]
"""Called once; None: the program cancelled a lasting task, as `asyncio.run` does at its end."""


class BackgroundTasks:
    """The tasks of one client between `start` and `close`.

    The first task that raises ends them all. After `end` no task runs and `on_failed` is dropped.
    """

    def __init__(self, on_failed: OnFailed) -> None:
        self._on_failed: OnFailed | None = on_failed
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lasting: set[asyncio.Task[Any]] = set()

    def start(
        self, work: Coroutine[Any, Any, None], *, name: str, lasting: bool = False
    ) -> asyncio.Task[None]:
        """Runs `work`; a `lasting` task runs until `end`, and its cancellation is a failure."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        if lasting:
            self._lasting.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def end(self) -> None:
        """Cancels all tasks and returns when the last one has ended."""
        self._on_failed = None
        self._cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        is_lasting = task in self._lasting
        self._lasting.discard(task)
        if task.cancelled():
            if is_lasting:
                self._fail(None)
            return
        cause = task.exception()
        if cause is not None:
            # The frames of a task that has ended refer to the client, which keeps the cause.
            traceback.clear_frames(cause.__traceback__)
            self._fail(cause)

    def _fail(self, cause: BaseException | None) -> None:
        on_failed, self._on_failed = self._on_failed, None
        if on_failed is not None:
            self._cancel()
            on_failed(cause)


def mark_seen(task: asyncio.Task[Any]) -> None:
    """Marks a task's exception as seen: each waiter gets it, and there may be none left."""
    if not task.cancelled():
        task.exception()
