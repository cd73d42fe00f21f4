"""The states of a group member, the transitions between them, and the function that writes them.

Owns legality: a step that a state does not know raises. Knows neither partitions nor time. Source:
the client's side of Kafka's classic group protocol; KIP-429 for giving up after the assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final


class MemberState(StrEnum):
    """Where a member is."""

    UNJOINED = "unjoined"
    """Not a member: it subscribes to nothing, or it has left."""
    REVOKING = "revoking"
    """It revokes partitions: finishes their records, commits, and calls the user's callback."""
    JOINING = "joining"
    """Its JoinGroup waits for the other members."""
    LEADING = "leading"
    """It is the leader, and refreshes the metadata of the topics to assign."""
    SYNCING = "syncing"
    """It waits for its assignment."""
    ASSIGNING = "assigning"
    """It takes partitions over: looks up positions, and calls the user's callback."""
    STABLE = "stable"
    """It reads its partitions."""
    LEAVING = "leaving"
    """Its LeaveGroup is under way."""
    FAILED = "failed"
    """It cannot be a member any more: the error is not retriable."""


class Step(Enum):
    """What moves a member; the values are the labels of a diagram."""

    JOIN = "joins"
    LEAD = "is made the leader"
    SYNC = "asks for its assignment"
    GIVE_UP = "gives partitions up"
    TAKE_OVER = "takes its assignment over"
    SETTLE = "has taken over"
    LEAVE = "leaves"
    GONE = "is out of the group"
    FAIL = "cannot go on"


_S, _E = MemberState, Step
TRANSITIONS: Final[Mapping[tuple[MemberState, Step], MemberState]] = MappingProxyType(
    {
        (_S.UNJOINED, _E.JOIN): _S.JOINING,
        (_S.JOINING, _E.JOIN): _S.JOINING,
        (_S.JOINING, _E.LEAD): _S.LEADING,
        (_S.JOINING, _E.SYNC): _S.SYNCING,
        (_S.JOINING, _E.GIVE_UP): _S.REVOKING,
        (_S.JOINING, _E.LEAVE): _S.LEAVING,
        (_S.LEADING, _E.JOIN): _S.JOINING,
        (_S.LEADING, _E.SYNC): _S.SYNCING,
        (_S.LEADING, _E.GIVE_UP): _S.REVOKING,
        (_S.LEADING, _E.LEAVE): _S.LEAVING,
        (_S.SYNCING, _E.JOIN): _S.JOINING,
        (_S.SYNCING, _E.GIVE_UP): _S.REVOKING,
        (_S.SYNCING, _E.TAKE_OVER): _S.ASSIGNING,
        (_S.SYNCING, _E.LEAVE): _S.LEAVING,
        (_S.REVOKING, _E.GIVE_UP): _S.REVOKING,
        (_S.REVOKING, _E.JOIN): _S.JOINING,
        (_S.REVOKING, _E.TAKE_OVER): _S.ASSIGNING,
        (_S.REVOKING, _E.LEAVE): _S.LEAVING,
        (_S.REVOKING, _E.GONE): _S.UNJOINED,
        (_S.ASSIGNING, _E.SETTLE): _S.STABLE,
        (_S.STABLE, _E.GIVE_UP): _S.REVOKING,
        (_S.STABLE, _E.JOIN): _S.JOINING,
        (_S.STABLE, _E.LEAVE): _S.LEAVING,
        (_S.LEAVING, _E.GONE): _S.UNJOINED,
        **{(state, _E.FAIL): _S.FAILED for state in _S if state is not _S.FAILED},
    }
)
"""Every legal (state, step) and where it leads; `FAILED` has no way out."""

REBALANCING: Final = frozenset({_S.JOINING, _S.LEADING, _S.SYNCING})
"""Where the next generation is on its way: until it is complete, the group may refuse commits."""
IN_GENERATION: Final = frozenset({_S.REVOKING, _S.LEADING, _S.SYNCING, _S.ASSIGNING, _S.STABLE})
"""Where heartbeats are sent. A join that waits on the coordinator is a sign of life itself."""


class IllegalStep(Exception):
    """A step that the state does not know: a bug of this library."""

    def __init__(self, state: MemberState, step: Step) -> None:
        super().__init__(f"a member that is {state} cannot take the step {step.name}")


class Lifecycle:
    """The state of one member, which only `take` changes."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = MemberState.UNJOINED

    @property
    def state(self) -> MemberState:
        return self._state

    def take(self, step: Step) -> None:
        """Moves to where the step leads. Raises `IllegalStep`."""
        target = TRANSITIONS.get((self._state, step))
        if target is None:
            raise IllegalStep(self._state, step)
        self._state = target
