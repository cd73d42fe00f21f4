"""Lives of a quorum from a seed: no invariant breaks, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.raft.mutants import MUTANTS, first_seed_that_finds
from tests.raft.scenario import run_seed

SEEDS = 200
HUNTED = 600
"""Seeds in which each planted bug must show; most show in the first twenty."""
FOUND_BUGS = (1638,)
"""1638: a leader whose log began at its snapshot took the follower's epochs for unknown ones."""
WANTED = (
    "role Unattached",
    "role Follower",
    "role Prospective",
    "role Candidate",
    "role Leader",
    "role Resigned",
    "a follower has truncated its log",
    "a follower has installed a snapshot",
    "a directory was lost",
    "a process was found gone",
    "a change of voters was asked for",
    "a leader was lost for good",
)


def test_no_life_breaks_an_invariant_and_all_situations_are_met() -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        met += run_seed(seed)
    assert [situation for situation in WANTED if not met[situation]] == []


@pytest.mark.parametrize("seed", FOUND_BUGS)
def test_a_life_that_has_found_a_bug_goes_well(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: object) -> None:
    assert first_seed_that_finds(mutant, range(HUNTED)) is not None  # type: ignore[arg-type]


def test_the_same_seed_is_the_same_life() -> None:
    assert run_seed(5) == run_seed(5)
