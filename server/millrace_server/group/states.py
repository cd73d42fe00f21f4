"""The states of a consumer group, the transitions between them, and the only code that sets one.

Owns legality: a step that a state does not know raises. Knows neither members nor time. Source:
Kafka's `ClassicGroupState`. A load finds each group in Stable or Empty, because the records of
those two states are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class GroupState(Enum):
    """The state of a group; the values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    """No members; it may hold committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Joins are parked until every member has joined or the rebalance timeout has passed."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun; syncs are parked until the leader's assignment is durable."""
    STABLE = "Stable"
    """The assignment is durable: every member gets its part when it syncs."""
    DEAD = "Dead"
    """Its tombstones are being written."""


class Step(Enum):
    """What moves a group; the values are the labels of the state diagram."""

    REBALANCE = "a member joins, leaves, fails or changes"
    JOINED = "the members have joined"
    EMPTIED = "no member is left"
    ASSIGNED = "the leader's assignment is durable"
    REMOVED = "deleted, expired or moved away"


_S, _E = GroupState, Step
TRANSITIONS: Final[Mapping[tuple[GroupState, Step], GroupState]] = MappingProxyType(
    {
        (_S.EMPTY, _E.REBALANCE): _S.PREPARING_REBALANCE,
        (_S.EMPTY, _E.REMOVED): _S.DEAD,
        (_S.PREPARING_REBALANCE, _E.JOINED): _S.COMPLETING_REBALANCE,
        (_S.PREPARING_REBALANCE, _E.EMPTIED): _S.EMPTY,
        (_S.PREPARING_REBALANCE, _E.REMOVED): _S.DEAD,
        (_S.COMPLETING_REBALANCE, _E.ASSIGNED): _S.STABLE,
        (_S.COMPLETING_REBALANCE, _E.REBALANCE): _S.PREPARING_REBALANCE,
        (_S.COMPLETING_REBALANCE, _E.REMOVED): _S.DEAD,
        (_S.STABLE, _E.REBALANCE): _S.PREPARING_REBALANCE,
        (_S.STABLE, _E.REMOVED): _S.DEAD,
    }
)
"""Every legal (state, step) and the state that it leads to; no step leads out of Dead."""


class IllegalStep(Exception):
    """A step that the state does not know: a bug of the coordinator, never an error of a client."""

    def __init__(self, state: GroupState, step: Step) -> None:
        super().__init__(f"a group in state {state.value} cannot take the step {step.name}")


class Lifecycle:
    """The state of one group, which only `take` changes."""

    __slots__ = ("_state",)

    def __init__(self, state: GroupState = GroupState.EMPTY) -> None:
        self._state = state

    @property
    def state(self) -> GroupState:
        return self._state

    def can_take(self, step: Step) -> bool:
        """Whether the step is legal now."""
        return (self._state, step) in TRANSITIONS

    def take(self, step: Step) -> None:
        """Moves to the state that the step leads to. Raises `IllegalStep`."""
        target = TRANSITIONS.get((self._state, step))
        if target is None:
            raise IllegalStep(self._state, step)
        self._state = target


def state_diagram() -> str:
    """The transition table as the text of a Mermaid state diagram.

    >>> print(state_diagram().splitlines()[2])
        Empty --> PreparingRebalance: a member joins, leaves, fails or changes
    """
    lines = ["stateDiagram-v2", f"    [*] --> {GroupState.EMPTY.value}"]
    lines += [
        f"    {state.value} --> {target.value}: {step.value}"
        for (state, step), target in TRANSITIONS.items()
    ]
    lines.append(f"    {GroupState.DEAD.value} --> [*]")
    return "\n".join(lines) + "\n"
