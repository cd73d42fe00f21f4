"""Lives of replicated partitions from a seed: no invariant breaks, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.replication.mutants import MUTANTS, first_seed_that_finds
from tests.replication.scenario import run_seed

SEEDS = 120
HUNTED = 300
"""Seeds in which each planted bug must show; most show in the first ten."""
WANTED = (
    "a broker was fenced",
    "a broker was killed",
    "a broker was stopped in order",
    "a connection has ended",
    "a directory was lost",
    "a follower has replaced its log",
    "a follower has truncated its log",
    "a leader was elected uncleanly",
    "a log begins later",
    "a proposal was refused",
    "acks=all was answered",
    "an append was refused: the ISR is too small",
    "the power of all brokers was cut",
)


def test_no_life_breaks_an_invariant_and_all_situations_are_met() -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        met += run_seed(seed)
    assert [situation for situation in WANTED if not met[situation]] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: object) -> None:
    assert first_seed_that_finds(mutant, range(HUNTED)) is not None  # type: ignore[arg-type]


def test_the_same_seed_is_the_same_life() -> None:
    assert run_seed(5) == run_seed(5)
