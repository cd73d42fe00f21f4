"""The shared memory budget: accounts are served in order, and no byte is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_server.net.memory_budget import MemoryBudget


@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=30),
    leaving=st.sets(st.integers(0, 29)),
)
def test_waiters_are_granted_in_order_and_within_the_budget(
    sizes: list[int], leaving: set[int]
) -> None:
    budget = MemoryBudget(100, overdraft=40)
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
        # The account that waits longest is served as soon as those before gave their bytes back.
        assert granted[position] == number
        assert budget.used <= 100
        budget.charge(-sizes[number])
    assert granted == expected
    assert budget.used == 0
    assert budget.waiting_count == 0


def test_small_request_does_not_overtake_a_large_one() -> None:
    budget = MemoryBudget(100, overdraft=40)
    granted: list[str] = []
    assert budget.reserve(60, lambda: None)
    assert not budget.reserve(80, lambda: granted.append("large"))
    assert not budget.reserve(10, lambda: granted.append("small"))
    budget.charge(-60)
    assert granted == ["large", "small"]


def test_request_that_could_never_be_granted_is_refused() -> None:
    with pytest.raises(ValueError, match="101 bytes of a budget of 100"):
        MemoryBudget(100, overdraft=40).reserve(101, lambda: None)


@given(st.data())
def test_frames_that_grow_all_end_though_each_alone_could_fill_the_budget(
    data: st.DataObject,
) -> None:
    """Whatever the order in which their bytes come; one at a time passes the budget by a frame."""
    budget = MemoryBudget(100, overdraft=100)
    sizes = data.draw(st.lists(st.integers(1, 100), min_size=1, max_size=12))
    held = [0] * len(sizes)
    waiting: dict[int, int] = {}

    def grant_of(number: int) -> Callable[[], None]:
        def granted() -> None:
            held[number] = waiting.pop(number)

        return granted

    grants = [grant_of(number) for number in range(len(sizes))]
    left = set(range(len(sizes)))
    while left:
        ready = sorted(left - waiting.keys())
        assert ready, "all wait for each other"
        number = data.draw(st.sampled_from(ready))
        if held[number] == sizes[number]:
            budget.ended(grants[number])
            budget.charge(-held[number])
            left.remove(number)
            continue
        target = min(sizes[number], max(5, 4 * held[number]))
        if budget.reserve(target - held[number], grants[number], grows=held[number] > 0):
            held[number] = target
        else:
            waiting[number] = target
        assert budget.used <= 200
    assert budget.used == 0
    assert budget.waiting_count == 0
