"""The controller's rules under any events: no invariant breaks, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

from tests.server.metadata.controller_machine import ControllerMachine
from tests.server.metadata.mutants import MUTANTS, Patch, is_found, run

EXAMPLES = 300
HUNTED = 2_000
"""Examples in which each planted bug must show; most show in the first ten."""
WANTED = (
    "a broker has stopped cleanly",
    "a broker is retired",
    "a leader is elected from the ELR",
    "a reassignment is cancelled",
    "a reassignment is done or cancelled",
    "a registration is refused: DUPLICATE_BROKER_REGISTRATION",
    "a replica enters the ELR",
    "a replica is being added",
    "an ISR is refused: FENCED_LEADER_EPOCH",
    "an ISR is refused: INELIGIBLE_REPLICA",
    "an ISR is refused: INVALID_UPDATE_VERSION",
    "an ISR is refused: NEW_LEADER_ELECTED",
    "an ISR is refused: STALE_BROKER_EPOCH",
    "an unclean leader is elected",
    "the last known leader is elected",
)

TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=50, stateful_step_count=60, deadline=None)


def test_no_event_breaks_an_invariant_and_all_situations_are_met() -> None:
    ControllerMachine.met.clear()
    run(ControllerMachine, examples=EXAMPLES)
    assert [situation for situation in WANTED if not ControllerMachine.met[situation]] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Callable[[Patch], None]) -> None:
    assert is_found(mutant, examples=HUNTED) is not None
