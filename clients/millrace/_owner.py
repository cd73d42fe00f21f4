"""The event loop that a client belongs to: calls from elsewhere are refused, and a forgotten close
is reported.

Owns both sentences. A client has one owner, from its start to its close.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings

from millrace.errors import WrongLoop

log = logging.getLogger("millrace")


class Owner:
    """Where a client was started; `is_open` from then until its close was called."""

    def __init__(self, client: str) -> None:
        self.is_open = False
        self.closed_by = "`async with`, or await close()"
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0

    def take(self) -> None:
        """The client is started, in the loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self.is_open = True

    def release(self) -> None:
        """The client's close was called, or the client has failed: nothing is forgotten."""
        self.is_open = False

    def check(self) -> None:
        """Raises `WrongLoop` for a call from another event loop or another thread.

        A call without any running loop, in the thread of the client's, disturbs nothing.
        """
        if self._loop is None:
            return
        try:
            if asyncio.get_running_loop() is self._loop:
                return
        except RuntimeError:
            if threading.get_ident() == self._thread_id:
                return
            raise WrongLoop(
                f"this {self._client} belongs to an event loop in another thread; hand the call "
                "over with asyncio.run_coroutine_threadsafe, or use "
                f"millrace.sync.{self._client.capitalize()}, which any thread may call"
            ) from None
        raise WrongLoop(
            f"this {self._client} belongs to another event loop, in which it was started; make one "
            "in each loop, best by `async with`"
        )

    def warn_unclosed(self, client: object, lost: str = "") -> None:
        """Logs and warns that a client was not closed before it was thrown away."""
        self.release()
        sentence = f"a millrace {self._client} was not closed{lost}; use {self.closed_by}"
        # Python shows a ResourceWarning only where it is asked to.
        log.error(sentence)
        warnings.warn(sentence, ResourceWarning, source=client, stacklevel=3)


def warn_if_open(client: object, lost: str = "") -> None:
    """For `__del__`: a client whose settings were refused has no owner."""
    owner = getattr(client, "owner", None)
    if isinstance(owner, Owner) and owner.is_open:
        owner.warn_unclosed(client, lost)
