"""A client without an event loop: each call runs on the loop of a thread, or of the caller.

Owns a client's life as a context manager. Does not know the clients' calls.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from millrace._kafka_methods import KafkaMethodHints
from millrace._owner import Owner
from millrace._sync.loops import CallerLoop, LoopThread, is_of_this_process, loop_thread

T = TypeVar("T")

RECORDS_PER_CALL = 500
"""Records that `post` collects, and that iteration takes, per crossing to the loop's thread."""


class Startable(Protocol):
    """An async client."""

    owner: Owner

    async def start(self) -> None: ...
    async def close(self) -> None: ...


class BlockingClient(KafkaMethodHints):
    """The loop and the life cycle that the three blocking clients share."""

    def __init__(self, client: Startable, *, background: bool = True) -> None:
        """`background`: the loop goes on between calls, in a thread of its own."""
        self._life = client
        client.owner.closed_by = "`with`, or call close()"
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
        _open.add(self)

    def close(self) -> None:
        """Disconnects. Raises like the async client's `close`."""
        _open.discard(self)
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

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._warn_if_open()

    def _warn_if_open(self) -> None:
        """Reports a close that was forgotten."""
        life = getattr(self, "_life", None)
        if life is not None and life.owner.is_open and is_of_this_process(self._loop.pid):
            life.owner.warn_unclosed(self, self._left_behind())

    def _left_behind(self) -> str:
        """What a client that is not closed leaves behind, for the report."""
        return ""


def _warn_at_exit() -> None:
    # While threads and modules are still there.
    for client in list(_open):
        client._warn_if_open()


_open: weakref.WeakSet[BlockingClient] = weakref.WeakSet()
atexit.register(_warn_at_exit)
