"""Seeds of the simulation that every run of the tests goes through, and what they rest on."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.ledger import Ledger, Promise, Sent
from tests.sim.loop import SimLoop, Stuck
from tests.sim.scenario import run_seed

SEEDS = range(16)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 4))
def test_a_broker_on_a_bad_day_keeps_its_promises(first: int) -> None:
    acked = 0
    for seed in SEEDS[first : first + 4]:
        outcome = run_seed(seed)
        assert outcome.violations == [], f"python -m tests.sim --seed {seed}"
        acked += outcome.acked
    assert acked > 100


def test_a_seed_is_the_same_run_whatever_the_hashes_of_strings_are() -> None:
    program = (
        "from tests.sim.scenario import run_seed\nfor seed in (4, 8): print(run_seed(seed).digest)"
    )
    root = str(Path(__file__).parents[2])
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert len(set(digests[0].split())) == 2


def loop_of(seed: int) -> SimLoop:
    return SimLoop(random.Random(seed), on_unhandled=pytest.fail, turns_max=100_000)


def test_an_hour_takes_no_time_and_timers_of_one_moment_come_in_any_order() -> None:
    orders = set()
    for seed in range(20):
        order: list[int] = []
        loop = loop_of(seed)
        for number in range(4):
            loop.call_at(5000.0, order.append, number)
        loop.run_until_complete(asyncio.sleep(4600))
        loop.close()
        assert sorted(order) == [0, 1, 2, 3]
        orders.add(tuple(order))
    assert len(orders) > 5


def test_callbacks_of_one_turn_keep_their_order_as_asyncio_promises() -> None:
    for seed in range(20):
        order: list[int] = []
        loop = loop_of(seed)
        for number in range(10):
            loop.call_soon(order.append, number)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        assert order == list(range(10))


def test_a_run_in_which_nothing_can_happen_any_more_ends() -> None:
    loop = loop_of(1)
    forever = loop.create_future()
    with pytest.raises(Stuck, match="nothing is left"):
        loop.run_until_complete(forever)
    loop.close()


WHERE = ("t", 0)


def ledger_of(*numbers: int, acked: bool = True) -> Ledger:
    ledger = Ledger({"t": Promise(idempotent=True)})
    for offset, number in enumerate(numbers):
        sent = Sent(b"p %d" % number, WHERE, "p", number, 1.0)
        sent.offset = offset if acked else None
        ledger.note_sent(sent)
    return ledger


def test_a_ledger_that_is_kept_has_no_complaint() -> None:
    ledger = ledger_of(0, 1)
    ledger.note_read("c", WHERE, 0, b"p 0")
    assert ledger.check({WHERE: [(0, b"p 0"), (1, b"p 1")]}) == []


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ([(0, b"p 0")], "p 1 was acked as offset 1, where nothing is"),
        ([(0, b"p 1"), (1, b"p 0")], "after number 1"),
        ([(0, b"p 0"), (1, b"p 1"), (2, b"p 1")], "again"),
        ([(0, b"p 0"), (1, b"p 1"), (3, b"p 1")], "offset 3 follows 1"),
        ([(0, b"p 0"), (1, b"p 1"), (2, b"x")], "which nobody sent here"),
    ],
)
def test_a_ledger_names_what_was_not_kept(found: list[tuple[int, bytes]], complaint: str) -> None:
    assert any(complaint in text for text in ledger_of(0, 1).check({WHERE: found}))


def test_a_ledger_names_a_reader_that_was_given_a_gap_or_another_record() -> None:
    ledger = ledger_of(0, 1)
    ledger.note_read("c", WHERE, 1, b"p 0")
    complaints = ledger.check({WHERE: [(0, b"p 0"), (1, b"p 1")]})
    assert any("given offset 1 and not 0" in text for text in complaints)
    assert any("c read p 0 at offset 1, where in the end p 1 is" in text for text in complaints)
