"""When a member sends heartbeats, and how long its group has not answered.

Owns the schedule. Knows no state of the member and no generation.
"""

from __future__ import annotations

from millrace._group.effects import Heartbeat


class Heartbeats:
    """The heartbeats of one member: at most one is on its way. Times are of one monotonic clock."""

    __slots__ = (
        "_interval_ms",
        "_session_timeout_ms",
        "_silence_is_told",
        "answered_ms",
        "due_ms",
        "in_flight",
    )

    def __init__(self, *, interval_ms: int, session_timeout_ms: int) -> None:
        self.in_flight: Heartbeat | None = None
        self.due_ms = 0
        self.answered_ms: int | None = None
        """When the group last answered a heartbeat, join or sync."""
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._silence_is_told = False

    def answered(self, now_ms: int) -> None:
        """The group answered: the next heartbeat is due after an interval."""
        self.answered_ms = now_ms
        self.due_ms = now_ms + self._interval_ms
        self._silence_is_told = False

    def is_due(self, now_ms: int) -> bool:
        """Whether to send one now. The next is due after an interval, and not before an answer."""
        if now_ms < self.due_ms:
            return False
        self.due_ms = now_ms + self._interval_ms
        return self.in_flight is None

    def ended(self, heartbeat: Heartbeat) -> bool:
        """A heartbeat was answered or failed; False for one that was forgotten before."""
        if heartbeat is not self.in_flight:
            return False
        self.in_flight = None
        return True

    def new_silence_ms(self, now_ms: int) -> int | None:
        """How long the group has not answered, once, when that is the session timeout or more."""
        silent_ms = 0 if self.answered_ms is None else now_ms - self.answered_ms
        if silent_ms < self._session_timeout_ms or self._silence_is_told:
            return None
        self._silence_is_told = True
        return silent_ms
