"""The shared memory budget: nobody overtakes, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_server.net.memory import MemoryBudget


@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=30),
    leaving=st.sets(st.integers(0, 29)),
)
def test_waiters_are_granted_in_order_and_within_the_budget(
    sizes: list[int], leaving: set[int]
) -> None:
    budget = MemoryBudget(100)
    granted: list[int] = []
    waiting: dict[int, object] = {}

    for number, size in enumerate(sizes):

        def grant(number: int = number) -> None:
            granted.append(number)

        if budget.reserve(size, grant):
            granted.append(number)
        else:
            waiting[number] = grant
            if number in leaving:
                budget.withdraw(grant)
        assert budget.used <= 100
    expected = [number for number in range(len(sizes)) if number not in leaving & set(waiting)]
    for position, number in enumerate(expected):
        # Whoever waits longest is served as soon as those before gave their bytes back.
        assert granted[position] == number
        assert budget.used <= 100
        budget.charge(-sizes[number])
    assert granted == expected
    assert budget.used == 0
    assert budget.waiting_count == 0


def test_small_request_does_not_overtake_a_large_one() -> None:
    budget = MemoryBudget(100)
    granted: list[str] = []
    assert budget.reserve(60, lambda: None)
    assert not budget.reserve(80, lambda: granted.append("large"))
    assert not budget.reserve(10, lambda: granted.append("small"))
    budget.charge(-60)
    assert granted == ["large", "small"]


def test_request_that_could_never_be_granted_is_refused() -> None:
    with pytest.raises(ValueError, match="101 bytes of a budget of 100"):
        MemoryBudget(100).reserve(101, lambda: None)
