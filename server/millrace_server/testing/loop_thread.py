"""An event loop in a thread of its own, for code that has no loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, from `start` to `end`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether `run` may be called."""
        return self._loop is not None

    def start(self) -> None:
        """Starts the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which runs in the thread. Raises what it raises."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the loop of the broker is not running; use `with`")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def end(self) -> None:
        """Ends loop and thread; does nothing when they have ended."""
        if self._loop is None or self._thread is None:
            return
        # The loop's own threads look up addresses; closing the loop would not wait for them.
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None
