"""The events of a membership, in sentences for an operator."""

from __future__ import annotations

from millrace._group.effects import Emit, Partitions
from millrace._group.ownership import Ownership
from millrace.errors import MillraceError
from millrace.events import EventKind
from millrace.records import TopicPartition

LOOP_STALL_MS = 1_000
"""A timer that is so late means that the event loop was blocked: heartbeats come late too."""
_NAMES_MAX = 20
"""Partitions that a sentence names."""


def loop_stalls(late_ms: int, session_timeout_ms: int) -> list[Emit]:
    """A timer fired so late; an event where that is no small delay."""
    if late_ms < LOOP_STALL_MS:
        return []
    sentence = (
        f"the event loop was blocked for {late_ms} ms; a group removes members that send no "
        f"heartbeat for {session_timeout_ms} ms"
    )
    return [Emit(EventKind.LOOP_STALLED, sentence)]


def rebalancing(group: str, reason: str) -> Emit:
    """The member leaves the stable generation."""
    return Emit(EventKind.REBALANCING, f"group {group!r} rebalances: {reason}")


def assigned(group: str, generation: int, owned: Ownership, took_ms: int) -> Emit:
    """The member has its assignment of a generation."""
    return Emit(
        EventKind.ASSIGNED,
        f"generation {generation} of group {group!r}: reads {names(owned.held)}, before "
        f"{names(owned.reported)}, after {took_ms} ms",
    )


def lost(held: Partitions, error: MillraceError) -> Emit:
    """The group goes on without the member."""
    return Emit(EventKind.LOST, f"lost {names(held)}: {error}", error)


def coordinator_lost(group: str, silent_ms: int, *, held: Partitions, error: MillraceError) -> Emit:
    """The group did not answer for the session timeout."""
    return Emit(
        EventKind.COORDINATOR_LOST,
        f"group {group!r} has not answered for {silent_ms} ms and may have given {names(held)} "
        f"to others: {error}",
        error,
    )


def names(partitions: Partitions) -> str:
    """Partitions as text, the first ones where there are many."""
    shown = ", ".join(str(TopicPartition(*each)) for each in sorted(partitions)[:_NAMES_MAX])
    more = len(partitions) - _NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown or "nothing"
