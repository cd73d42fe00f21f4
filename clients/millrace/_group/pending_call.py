"""The one call of a member that is in flight, or waits for its retry."""

from __future__ import annotations

from millrace._group.effects import Call


class PendingCall:
    """A call is `current` until it ends. One that failed is repeated at `retry_at_ms`."""

    __slots__ = ("_retry", "current", "retry_at_ms")

    def __init__(self) -> None:
        self.current: Call | None = None
        self.retry_at_ms: int | None = None
        self._retry: Call | None = None

    def start(self, call: Call) -> None:
        """Makes `call` the current one; an earlier one, and its repetition, is forgotten."""
        self.forget()
        self.current = call

    def ended(self) -> None:
        """The current call was answered, or failed for good."""
        self.current = None

    def repeat(self, call: Call, at_ms: int) -> None:
        """The current call failed and is repeated at `at_ms`."""
        self.current = None
        self._retry, self.retry_at_ms = call, at_ms

    def due(self, now_ms: int) -> Call | None:
        """The call to repeat now, once."""
        if self.retry_at_ms is None or now_ms < self.retry_at_ms:
            return None
        call = self._retry
        self.forget()
        return call

    def forget(self) -> None:
        """Ends the call; the member ignores a response that still comes."""
        self.current = self._retry = self.retry_at_ms = None
