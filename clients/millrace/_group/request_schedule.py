"""The requests of one member: one call and one heartbeat, in flight or waiting for their time.

Owns retries and the intervals of heartbeats. Knows no state of the member. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace._backoff import Backoff, Rng
from millrace._group.effects import Call, Effect, Heartbeat
from millrace._group.heartbeats import Heartbeats
from millrace._group.member_identity import MemberConfig
from millrace._group.pending_call import PendingCall


class RequestSchedule:
    """At most one call and one heartbeat are in flight. Times are of one monotonic clock."""

    __slots__ = ("_backoff", "_call", "_calls_end_ms", "_heartbeats")

    def __init__(self, config: MemberConfig, rng: Rng) -> None:
        self._backoff = Backoff(
            first_ms=config.retry_backoff_ms, max_ms=config.retry_backoff_max_ms, rng=rng
        )
        self._call = PendingCall()
        self._calls_end_ms: int | None = None
        self._heartbeats = Heartbeats(
            interval_ms=config.heartbeat_interval_ms, session_timeout_ms=config.session_timeout_ms
        )

    @property
    def call(self) -> Call | None:
        """The call in flight."""
        return self._call.current

    @property
    def answered_ms(self) -> int | None:
        """The time of the group's last response to a heartbeat, join or sync."""
        return self._heartbeats.answered_ms

    def deadline_ms(self, *, with_heartbeats: bool) -> int | None:
        """The time of the next request, or of the end of calls; None: not before an event."""
        due_ms = self._heartbeats.due_ms if with_heartbeats else None
        known = (self._call.retry_at_ms, self._calls_end_ms, due_ms)
        return min((each for each in known if each is not None), default=None)

    # The call

    def start(self, call: Call) -> list[Effect]:
        """Makes `call` the current one; returns it as the effect."""
        self._call.start(call)
        return [call]

    def end(self) -> None:
        """The call failed for good."""
        self._call.ended()

    def succeed(self) -> None:
        """The call has its response."""
        self._call.ended()
        self._backoff.reset()

    def repeat(self, call: Call, now_ms: int) -> None:
        """The call failed, and is due again after the backoff."""
        self._call.repeat(call, now_ms + self._backoff.next_ms())

    def due_call(self, now_ms: int) -> Call | None:
        """The call to repeat now, once."""
        return self._call.due(now_ms)

    def forget_call(self) -> None:
        """Ends the call; its response will be ignored."""
        self._call.forget()
        self._calls_end_ms = None

    def bound_calls(self, end_ms: int | None) -> None:
        """The call and those after it are to have ended then; None: no such time."""
        self._calls_end_ms = end_ms

    def are_calls_overdue(self, now_ms: int) -> bool:
        """Whether the time of `bound_calls` has come."""
        return self._calls_end_ms is not None and now_ms >= self._calls_end_ms

    # Heartbeats

    def on_answered(self, now_ms: int) -> None:
        """The group responded: the next heartbeat is due after an interval."""
        self._heartbeats.answered(now_ms)
        self._backoff.reset()

    def due_heartbeat(self, now_ms: int, make: Callable[[], Heartbeat]) -> list[Effect]:
        """The heartbeat to send now."""
        if not self._heartbeats.is_due(now_ms):
            return []
        self._heartbeats.in_flight = heartbeat = make()
        return [heartbeat]

    def end_heartbeat(self, heartbeat: Heartbeat) -> bool:
        """The heartbeat was answered or failed; False for one that was forgotten before."""
        return self._heartbeats.ended(heartbeat)

    def repeat_heartbeat(self, now_ms: int) -> int | None:
        """The heartbeat failed, and is due again after the backoff.

        Returns the silence of the group, once, when it has reached the session timeout.
        """
        self._heartbeats.due_ms = now_ms + self._backoff.next_ms()
        return self._heartbeats.new_silence_ms(now_ms)

    def forget_heartbeat(self) -> None:
        """Ends the heartbeat; its response will be ignored."""
        self._heartbeats.in_flight = None
