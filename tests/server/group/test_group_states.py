"""The transition table of a group, and the diagram made of it."""

from __future__ import annotations

import itertools

import pytest

from millrace_server.group.states import (
    TRANSITIONS,
    GroupState,
    IllegalStep,
    Lifecycle,
    Step,
    state_diagram,
)


@pytest.mark.parametrize(
    ("state", "step"), list(itertools.product(GroupState, Step)), ids=lambda each: each.name
)
def test_a_step_is_taken_as_the_table_says_or_refused(state: GroupState, step: Step) -> None:
    life = Lifecycle(state)
    target = TRANSITIONS.get((state, step))
    assert life.can_take(step) is (target is not None)
    if target is None:
        with pytest.raises(IllegalStep, match=state.value):
            life.take(step)
        assert life.state is state
    else:
        life.take(step)
        assert life.state is target


def test_nothing_leads_out_of_a_dead_group_and_everything_leads_into_it() -> None:
    sources = {state for (state, _), target in TRANSITIONS.items() if target is GroupState.DEAD}
    assert sources == set(GroupState) - {GroupState.DEAD}
    assert not any(state is GroupState.DEAD for state, _ in TRANSITIONS)


def test_a_group_gets_its_assignment_only_through_both_phases() -> None:
    into_stable = [edge for edge, target in TRANSITIONS.items() if target is GroupState.STABLE]
    assert into_stable == [(GroupState.COMPLETING_REBALANCE, Step.ASSIGNED)]
    into_completing = [
        edge for edge, target in TRANSITIONS.items() if target is GroupState.COMPLETING_REBALANCE
    ]
    assert into_completing == [(GroupState.PREPARING_REBALANCE, Step.JOINED)]


def test_the_diagram_has_one_arrow_per_transition() -> None:
    lines = state_diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    arrows = [line.strip() for line in lines[1:]]
    assert arrows[0] == "[*] --> Empty"
    assert arrows[-1] == "Dead --> [*]"
    assert arrows[1:-1] == [
        f"{state.value} --> {target.value}: {step.value}"
        for (state, step), target in TRANSITIONS.items()
    ]
