"""The place of one response that is not ready, and the coroutine that makes it.

Owns the coroutine from the first step to its end, and drives it without a task: what it awaits
resumes it, and for a `Completion` that happens within the call that completes it. So between the
end of an fdatasync and the send of its acks there is no future and no pass of the loop that only
forwards a result.

A coroutine that is not finished when its connection ends is cancelled: it gets `CancelledError` at
its `await`, as a task would. Work that must not stop halfway runs as a task of its own
(`Services.run`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from millrace_server.environment.seams import Response
from millrace_server.loop.completion import Completion
from millrace_server.loop.fair_scheduler import Turn

Handled = Response | Coroutine[Any, Any, Response] | None
"""What comes of a request: its response, a coroutine that returns it, or None when the request has
no response."""


class Responder(Protocol):
    """The connection, as a pending response knows it."""

    def on_response(self, pending: PendingResponse, response: Response) -> None:
        """The coroutine has returned."""

    def on_waiting(self, pending: PendingResponse) -> None:
        """The coroutine waits for something else than the fair scheduler, for which it waited."""

    def on_failure(self, pending: PendingResponse, error: BaseException) -> None:
        """The coroutine has raised.

        `CancelledError` says that what it awaited was cancelled, because the broker stops. All else
        is a bug: expected errors are responses.
        """


class PendingResponse:
    """One place in a connection's response queue.

    `parts` are what the response has so far and has not sent, `is_complete` says that there will
    be no more of them, `request_bytes` is the memory that the request holds meanwhile.
    """

    __slots__ = (
        "_awaited",
        "_coroutine",
        "_responder",
        "is_complete",
        "is_stream",
        "is_yielding",
        "parts",
        "request_bytes",
    )

    def __init__(self, responder: Responder | None, request_bytes: int) -> None:
        """Without a responder it is the place of a response that is ready before its turn."""
        self._responder = responder
        self._coroutine: Coroutine[Any, Any, Response] | None = None
        self._awaited: asyncio.Future[Any] | None = None
        self.parts: Response = []
        self.is_complete = False
        self.is_stream = False
        """Whether parts are sent before the response is whole, for as long as the peer listens."""
        self.is_yielding = False
        """Whether the coroutine waits for the fair scheduler."""
        self.request_bytes = request_bytes

    def drive(self, coroutine: Coroutine[Any, Any, Response], awaited: Any) -> None:
        """Drives a coroutine whose first step has led to `awaited`."""
        self._coroutine = coroutine
        if self._responder is None:
            # The first step has ended its own connection.
            self._awaited = awaited
            self.close()
        else:
            self._wait_for(awaited)

    @property
    def is_running(self) -> bool:
        """Whether the coroutine is within a step."""
        return getattr(self._coroutine, "cr_running", False)

    def step(self) -> None:
        """Runs the coroutine to its next `await` that has to wait, or to its end."""
        responder = self._responder
        if responder is None or self._coroutine is None:
            return
        self._awaited = None
        was_yielding, self.is_yielding = self.is_yielding, False
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as end:
            self._responder = self._coroutine = None
            responder.on_response(self, end.value)
        except (Exception, asyncio.CancelledError) as error:
            self._responder = self._coroutine = None
            responder.on_failure(self, error)
        else:
            self._wait_for(awaited)
            if was_yielding and not self.is_yielding:
                responder.on_waiting(self)

    def close(self) -> None:
        """Ends the coroutine where it is."""
        self._responder = None
        awaited, self._awaited = self._awaited, None
        if isinstance(awaited, Completion):
            awaited.resume = None
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            _cancel(coroutine)
        if awaited is not None and not isinstance(awaited, asyncio.Task):
            # Only this coroutine waits for it.
            awaited.cancel()

    def _wait_for(self, awaited: Any) -> None:
        self._awaited = awaited
        if isinstance(awaited, Completion):
            self.is_yielding = type(awaited) is Turn
            awaited._asyncio_future_blocking = False
            awaited.resume = self.step
        elif awaited is None:
            # `asyncio.sleep(0)`
            asyncio.get_running_loop().call_soon(self.step)
        else:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._on_done)

    def _on_done(self, awaited: asyncio.Future[Any]) -> None:
        if self._awaited is awaited:
            self.step()


def _cancel(coroutine: Coroutine[Any, Any, Response]) -> None:
    # Not `close`: an asynchronous generator that the coroutine iterates over would count as running
    # then, and its own `aclose` would fail.
    try:
        coroutine.throw(asyncio.CancelledError())
    except (StopIteration, asyncio.CancelledError):
        return
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "the end of a cancelled request failed", "exception": error}
        )
    coroutine.close()
