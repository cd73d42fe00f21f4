"""A result that comes once, and resumes the coroutine that awaits it without a pass in between.

Every pass of the event loop between a cause and its effect costs latency and CPU: an asyncio
future calls back in the next pass. A request's coroutine (`net.pending_response`) is resumed
within the call of `complete`; a task that awaits the same object is resumed as by any future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Completion(asyncio.Future[T]):
    """A future of the running loop. `resume` is set by what drives the awaiting coroutine."""

    __slots__ = ("resume",)

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.resume: Callable[[], None] | None = None

    def complete(self, result: T) -> bool:
        """Sets the result and resumes; False, and nothing happens, when it is done already."""
        if self.done():
            return False
        self.set_result(result)
        self._resume()
        return True

    def fail(self, error: BaseException) -> bool:
        """Sets an exception and resumes; False, and nothing happens, when it is done already."""
        if self.done():
            return False
        self.set_exception(error)
        self._resume()
        return True

    def _resume(self) -> None:
        resume, self.resume = self.resume, None
        if resume is not None:
            resume()
