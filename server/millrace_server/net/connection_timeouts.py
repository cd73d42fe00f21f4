"""How long a connection may go without doing its part.

Owns the moments since which nothing happened. Pure: it is shown counters now and then
and compares them with what it saw before, so that the traffic itself never reads a clock. The
price is precision: a limit is noticed up to one look late.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.limits import Limits


@dataclass(slots=True)
class Activity:
    """What is seen of a connection at one look."""

    requests: int
    """Whole requests received so far."""
    bytes_in: int
    bytes_out: int
    partial: bool
    """An unfinished request is held, and reading goes on."""
    holds_scarce_memory: bool
    """The unfinished request holds memory that others wait for."""
    response_due: bool
    """There are requests without an answer or answers not sent."""
    waits_for_peer: bool
    """Answers wait for the peer to read."""
    input_ended: bool
    lingers: bool
    """Our side has ended, the peer's has not."""


class ConnectionTimeouts:
    """The time limits of one connection, from `opened_ms` on."""

    __slots__ = (
        "_active_ms",
        "_bytes_out",
        "_limits",
        "_lingers_ms",
        "_opened_ms",
        "_partial_ms",
        "_requests",
        "_scarce_from_bytes",
        "_scarce_since_ms",
        "_stalled_ms",
        "is_authenticated",
    )

    def __init__(self, limits: Limits, opened_ms: int) -> None:
        self.is_authenticated = True
        """False until a peer that must authenticate has done so."""
        self._limits = limits
        self._opened_ms = opened_ms
        self._active_ms = opened_ms
        self._requests = 0
        self._bytes_out = 0
        self._partial_ms: int | None = None
        self._scarce_since_ms: int | None = None
        self._scarce_from_bytes = 0
        self._stalled_ms: int | None = None
        self._lingers_ms: int | None = None

    def overdue(self, now_ms: int, activity: Activity) -> str | None:
        """Why the connection must be closed, or None."""
        limits = self._limits
        if activity.lingers:
            self._lingers_ms = _since(self._lingers_ms, now_ms)
            if now_ms - self._lingers_ms >= limits.linger_ms:
                return "our side was closed and the peer did not close its own"
            return None
        requested = activity.requests != self._requests
        sent = activity.bytes_out != self._bytes_out
        self._requests = activity.requests
        self._bytes_out = activity.bytes_out
        waits_on_us = (
            activity.response_due and not activity.waits_for_peer and not activity.input_ended
        )
        if requested or sent or waits_on_us:
            self._active_ms = now_ms

        self._partial_ms = _since(None if requested else self._partial_ms, now_ms)
        if not activity.partial:
            self._partial_ms = None
        self._stalled_ms = _since(None if sent else self._stalled_ms, now_ms)
        if not activity.waits_for_peer:
            self._stalled_ms = None

        if not activity.holds_scarce_memory or requested or self._scarce_since_ms is None:
            self._scarce_since_ms = now_ms if activity.holds_scarce_memory else None
            self._scarce_from_bytes = activity.bytes_in

        if not activity.requests and now_ms - self._opened_ms >= limits.first_frame_timeout_ms:
            return f"no whole request within {limits.first_frame_timeout_ms} ms of connecting"
        authentication_ms = limits.authentication_timeout_ms
        if not self.is_authenticated and now_ms - self._opened_ms >= authentication_ms:
            return f"not authenticated within {authentication_ms} ms of connecting"
        if self._partial_ms is not None and now_ms - self._partial_ms >= limits.frame_timeout_ms:
            return f"a request was not finished within {limits.frame_timeout_ms} ms"
        if (
            self._scarce_since_ms is not None
            and now_ms - self._scarce_since_ms >= limits.scarce_timeout_ms
        ):
            received = activity.bytes_in - self._scarce_from_bytes
            if received * 1000 < limits.scarce_bytes_per_s * (now_ms - self._scarce_since_ms):
                return f"a slow request held memory that others waited for: {received} bytes came"
            self._scarce_since_ms = None
        if self._stalled_ms is not None and now_ms - self._stalled_ms >= limits.output_stalled_ms:
            return f"the peer read nothing for {limits.output_stalled_ms} ms while answers waited"
        if now_ms - self._active_ms >= limits.connections_max_idle_ms:
            return f"idle for {limits.connections_max_idle_ms} ms"
        return None


def _since(moment_ms: int | None, now_ms: int) -> int:
    return now_ms if moment_ms is None else moment_ms
