"""A client without an event loop: each call runs on the loop of a thread, or of the caller.

Owns a client's life as a context manager. Does not know the clients' calls.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from millrace._sync.loops import CallerLoop, LoopThread, loop_thread

T = TypeVar("T")

RECORDS_PER_CALL = 500
"""Records that `post` collects, and that iteration takes, per crossing to the loop's thread."""


class Startable(Protocol):
    """An async client."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...


class BlockingClient:
    """The loop and the life cycle that the three blocking clients share."""

    def __init__(self, client: Startable, *, background: bool = True) -> None:
        """`background`: the loop goes on between calls, in a thread of its own."""
        self._life = client
        self._loop: LoopThread | CallerLoop = loop_thread() if background else CallerLoop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    def _call(self, function: Callable[[], T]) -> T:
        """Runs a plain function on the loop, where the client's state lives."""

        async def call() -> T:
            return function()

        return self._run(call())

    def start(self) -> None:
        """Connects. Raises like the async client's `start`."""
        self._run(self._life.start())

    def close(self) -> None:
        """Disconnects. Raises like the async client's `close`."""
        try:
            self._run(self._life.close())
        finally:
            self._loop.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
