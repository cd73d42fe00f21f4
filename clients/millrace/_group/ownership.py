"""The partitions of one member: those it owns, its assignment, and the hand-over between them.

Owns when partitions are gained and lost. Knows neither states nor requests. Pure.

    `held` grows when an assignment is taken over, and shrinks when a revocation has ended
"""

from __future__ import annotations

from millrace._group.effects import Assign, HandOver, Partitions, Revoke
from millrace.errors import MillraceError

_NOTHING: Partitions = frozenset()


class Ownership:
    """At most one hand-over is in progress.

    `assigned` is the last assignment, which is not taken over yet; `reported` are the partitions
    of the last event about an assignment.
    """

    __slots__ = ("_hand_over", "assigned", "held", "reported")

    def __init__(self) -> None:
        self.held: Partitions = _NOTHING
        self.assigned: Partitions = _NOTHING
        self.reported: Partitions = _NOTHING
        self._hand_over: HandOver | None = None

    @property
    def is_handing_over(self) -> bool:
        """Whether a hand-over is in progress."""
        return self._hand_over is not None

    @property
    def unassigned(self) -> Partitions:
        """Owned partitions that the last assignment lacks."""
        return self.held - self.assigned

    def outside(self, topics: frozenset[str]) -> Partitions:
        """Owned partitions of other topics."""
        return frozenset(each for each in self.held if each.topic not in topics)

    def revoke(self, partitions: Partitions, lost: MillraceError | None) -> Revoke:
        """Begins to revoke partitions, or to drop lost ones."""
        self._hand_over = revoke = Revoke(partitions, lost)
        return revoke

    def take_over(self) -> Assign:
        """Begins to take the assignment over."""
        added = self.assigned - self.held
        self.held = self.assigned
        self._hand_over = assign = Assign(self.held, added)
        return assign

    def end(self, hand_over: HandOver) -> bool:
        """Ends the hand-over; False for one that is not in progress any more."""
        if hand_over is not self._hand_over:
            return False
        self._hand_over = None
        if isinstance(hand_over, Revoke):
            self.held -= hand_over.partitions
        return True

    def lose_all(self) -> Partitions:
        """Ends everything, without a hand-over; returns the partitions that were owned."""
        lost, self.held = self.held, _NOTHING
        self._hand_over = None
        return lost
