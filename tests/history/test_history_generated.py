"""No false alarm on valid histories, and none that is spoilt goes through.

`python -m tests.history --histories 10000` is the bigger run.
"""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.history.anomalies import Kind
from tests.history.checker import check
from tests.history.generated import MUTATIONS, Mutation, valid_history
from tests.history.operations import Operation, Polled

SEEDS = st.integers(0, 2**48)


@settings(max_examples=500, deadline=None)
@given(seed=SEEDS, steps=st.integers(1, 250))
def test_a_valid_history_is_found_valid(seed: int, steps: int) -> None:
    report = check(valid_history(seed, steps=steps))
    assert report.is_valid, str(report)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_spoilt_history_is_caught(mutation: Mutation) -> None:
    caught = 0
    for seed in range(120):
        spoilt = mutation(valid_history(seed), random.Random(seed))
        if spoilt is not None:
            report = check(spoilt)
            assert report.kinds & MUTATIONS[mutation], f"seed {seed}: {report}"
            caught += 1
    assert caught > 40


def test_the_mutations_reach_every_kind() -> None:
    assert set().union(*MUTATIONS.values()) == set(Kind)


def test_the_histories_hold_every_operation() -> None:
    found = {type(operation) for seed in range(20) for operation in valid_history(seed).operations}
    assert found == set(Operation.__args__)


def test_checking_takes_time_in_proportion_to_the_history() -> None:
    def cost(steps: int) -> float:
        history = valid_history(3, steps=steps)
        count = sum(
            len(operation.records) if isinstance(operation, Polled) else 1
            for operation in history.operations
        )
        started = time.process_time()
        check(history)
        return (time.process_time() - started) / count

    cost(2_000)
    # Eight times as long: a check in the square of it would cost eight times as much an operation.
    assert min(cost(24_000) for _ in range(2)) < 4 * min(cost(3_000) for _ in range(3))
