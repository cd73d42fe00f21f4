"""The deadline until which the application asks for more records.

Owns the processing deadline: when it is near, when it has passed, and that any progress starts it
anew. Knows neither a loop nor a clock; `now_ms` is monotonic. Membership does not hang on it:
heartbeats go on in the background however long the user takes.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

_SLOW_SHARE = 2
"""A warning comes after half of the time, so that the application can react."""


class PollAlert(Enum):
    """What has come up."""

    SLOW = "half of the time is over"
    OVERDUE = "all of it is"


class PollDeadline:
    """The user's time: it runs while something is in hand and nothing more is asked for.

    `progress` is a value that changes when the user takes another record without asking, as from an
    iterator over a chunk.
    """

    def __init__(self, max_poll_interval_ms: int) -> None:
        self.is_overdue = False
        self._limit_ms = max_poll_interval_ms
        self._began_ms: int | None = None
        self._extra_ms = 0
        self._progress: Hashable = None
        self._told_slow = False

    def on_asked(self) -> None:
        """The user asks for more: what it had is done."""
        self._began_ms = None
        self.is_overdue = False

    def on_handed(self, progress: Hashable, now_ms: int) -> None:
        """The user has something in hand."""
        if self._began_ms is None or progress != self._progress:
            self._begin(progress, now_ms)

    def extend(self, extra_ms: int, now_ms: int) -> None:
        """The user says that it will take that much longer, from now on."""
        if self._began_ms is None:
            return
        self._extra_ms = max(self._extra_ms, now_ms - self._began_ms + extra_ms - self._limit_ms)
        self._told_slow = self.is_overdue = False

    def left_ms(self, now_ms: int) -> int | None:
        """What is left of the time, negative when it is over; None when the user waits."""
        if self._began_ms is None:
            return None
        return self._began_ms + self._limit_ms + self._extra_ms - now_ms

    def busy_ms(self, now_ms: int) -> int | None:
        """How long the user has had what it has; None when it waits."""
        return None if self._began_ms is None else now_ms - self._began_ms

    def deadline_ms(self) -> int | None:
        """When `on_deadline` wants to be called next."""
        if self._began_ms is None or self.is_overdue:
            return None
        whole_ms = self._limit_ms + self._extra_ms
        return self._began_ms + (whole_ms if self._told_slow else whole_ms // _SLOW_SHARE)

    def on_deadline(self, progress: Hashable, now_ms: int) -> PollAlert | None:
        """The alert that is due now, each once."""
        due_ms = self.deadline_ms()
        if due_ms is None or now_ms < due_ms:
            return None
        if progress != self._progress:
            self._begin(progress, now_ms)
            return None
        if not self._told_slow:
            self._told_slow = True
            return PollAlert.SLOW
        self.is_overdue = True
        return PollAlert.OVERDUE

    def _begin(self, progress: Hashable, now_ms: int) -> None:
        self._progress = progress
        self._began_ms = now_ms
        self._extra_ms = 0
        self._told_slow = self.is_overdue = False
