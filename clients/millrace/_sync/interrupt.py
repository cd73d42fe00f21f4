"""^C during a call that runs an event loop in the caller's own thread.

Python raises KeyboardInterrupt in whatever code runs, which may be a task of the client: it would
die of it. The first ^C cancels the call instead, as `asyncio.Runner` does; a second one raises.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """Handles SIGINT within a `with`, where Python would: in the main thread, by default."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: asyncio.Task[Any]) -> None:
        self.has_come = False
        self._loop = loop
        self._call = call
        self._is_installed = False

    def __enter__(self) -> Self:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            signal.signal(signal.SIGINT, self._on_signal)
            self._is_installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.has_come or self._call.done():
            raise KeyboardInterrupt
        self.has_come = True
        self._call.cancel()
        # The loop may be waiting, and goes on waiting after a handler that returns.
        self._loop.call_soon_threadsafe(lambda: None)
