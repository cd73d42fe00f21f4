"""Seeds of the simulation that every run of the tests goes through, and what they rest on."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from millrace_server.log.recovery_point import RECOVERY_POINT_NAME, RecoveryPoint
from millrace_simulation.disk import SECTOR_BYTES, FaultyDisk
from millrace_simulation.loop import SimLoop, Stuck
from millrace_simulation.trace import Trace
from millrace_simulation.world import Rng
from tests.history.operations import Left
from tests.sim.ledger import NOT_SENT, Ledger, Where
from tests.sim.lookups import Lookup, Lookups
from tests.sim.rot import Rot
from tests.sim.scenario import run_seed

SEEDS = range(8)
HASHED = (2, 4, 7, 28)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 2))
def test_a_broker_on_a_bad_day_keeps_its_promises(first: int) -> None:
    acked = 0
    for seed in SEEDS[first : first + 2]:
        outcome = run_seed(seed)
        assert outcome.violations == [], f"python -m tests.sim --seed {seed}"
        acked += outcome.acked
    assert acked > 100


def test_a_seed_is_the_same_run_whatever_the_hashes_of_strings_are() -> None:
    program = (
        "from tests.sim.scenario import run_seed\n"
        f"for seed in {HASHED}: print(run_seed(seed).digest)"
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
    assert len(set(digests[0].split())) == len(HASHED)


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


WHERE: Where = ("t", 0)


def ledger_of(*stamps_ms: int) -> tuple[Ledger, list[bytes]]:
    """Records with these timestamps, acked at offsets from 0 on."""
    ledger, values = Ledger(), []
    process = ledger.process()
    for offset, stamp_ms in enumerate(stamps_ms):
        values.append(
            ledger.sent(process, WHERE, padding=b"..", stamp_ms=stamp_ms, is_idempotent=True)
        )
        ledger.acked(values[-1], offset, now_s=float(offset))
    return ledger, values


def read_all(ledger: Ledger, *values: bytes) -> None:
    process = ledger.process()
    ledger.sought(process, WHERE, 0)
    ledger.polled(process, WHERE, list(enumerate(values)))
    ledger.read_to_end(WHERE, 0, len(values))


def test_a_ledger_that_is_kept_has_no_complaint() -> None:
    ledger, values = ledger_of(1, 2)
    read_all(ledger, *values)
    assert ledger.check() == []


def test_a_ledger_names_what_is_gone() -> None:
    ledger, values = ledger_of(1, 2)
    read_all(ledger, values[0])
    (complaint,) = ledger.check()
    assert "t-0: 1 was acked at offset 1 and the log ends at 1" in complaint


def test_a_record_of_which_one_byte_is_another_is_none_that_was_sent() -> None:
    ledger, values = ledger_of(1, 2)
    assert [ledger.number_of(value) for value in values] == [0, 1]
    for other in (b"0 .,", b"0 ...", b"7 ..", b"x", b"", None):
        assert ledger.number_of(other) == NOT_SENT
    read_all(ledger, values[0], b"1 .,")
    assert any(complaint.startswith("PHANTOM") for complaint in ledger.check())


def test_after_a_partition_forgot_only_what_is_sent_then_is_promised() -> None:
    ledger, _ = ledger_of(1, 2)
    ledger.forgot(WHERE, Left.PREFIX)
    read_all(ledger)
    assert ledger.check() == []
    assert ledger.taken_too_early(WHERE, start_offset=2, since_ms=0) == []


def test_retention_that_took_what_is_young_is_named() -> None:
    ledger, _ = ledger_of(10, 30, 20)
    taken = ledger.taken_too_early(WHERE, start_offset=2, since_ms=20)
    assert len(taken) == 1
    assert "record 1 at offset 1 has timestamp 30" in taken[0]


@pytest.mark.parametrize(
    ("time_ms", "answer", "complaint"),
    [
        (15, (1, 30), None),
        (5, (0, 10), None),
        (31, None, None),
        (15, (0, 10), "was told offset 0 with 10"),
        (15, (2, 20), "and one before it is as late"),
        (15, (1, 29), "was told 29 of offset 1: it is 30"),
        (15, None, "was told of none, and offset 1 has 30"),
    ],
)
def test_an_answer_to_a_question_for_a_time_is_the_first_that_is_not_older(
    time_ms: int, answer: tuple[int, int] | None, complaint: str | None
) -> None:
    ledger, _ = ledger_of(10, 30, 20)
    lookups = Lookups(ledger, lambda: 9.0)
    lookups.note(Lookup(WHERE, time_ms, answer, began_s=9.0, life=0, start_offset=0))
    found = list(lookups.check(WHERE, {0: (10, 0), 1: (30, 1), 2: (20, 2)}))
    assert len(found) == (complaint is not None)
    assert all(complaint is not None and complaint in text for text in found)


def test_an_answer_says_nothing_of_what_was_acked_after_the_question() -> None:
    ledger, _ = ledger_of(10, 30)
    lookups = Lookups(ledger, lambda: 9.0)
    lookups.note(Lookup(WHERE, 15, None, began_s=0.5, life=0, start_offset=0))
    assert list(lookups.check(WHERE, {0: (10, 0), 1: (30, 1)})) == []


@pytest.mark.parametrize("answer", [(2, 20), None])
def test_an_answer_says_nothing_of_what_may_have_been_removed_before(
    answer: tuple[int, int] | None,
) -> None:
    ledger, _ = ledger_of(10, 30, 20)
    lookups = Lookups(ledger, lambda: 9.0)
    time_ms = 15 if answer else 25
    lookups.note(Lookup(WHERE, time_ms, answer, began_s=9.0, life=0, start_offset=2))
    assert list(lookups.check(WHERE, {0: (10, 0), 1: (30, 1), 2: (20, 2)})) == []


MARKED_BYTES = 1_500


class Stopped:
    """A time that stands still."""

    now_s = 0.0


def test_rot_changes_what_is_durable_and_says_in_which_partition_once_for_each() -> None:
    kinds: set[str] = set()
    for seed in range(40):
        trace = Trace(Stopped(), show=None)
        disk, rot = FaultyDisk(), Rot(trace)
        before: dict[str, bytes] = {}
        for topic in ("a", "b"):
            disk.make_directory(f"{topic}-0")
            file = disk.open(f"{topic}-0/{0:020d}.log", create=True, write=True)
            file.pwrite(random.Random(topic).randbytes(4_000), 0)
            file.sync()
            # What was synced beyond the recovery point looks like a torn tail: it is left alone.
            mark = disk.open(f"{topic}-0/{RECOVERY_POINT_NAME}", create=True, write=True)
            mark.pwrite(RecoveryPoint(1, 0, MARKED_BYTES).encode(), 0)
            disk.sync_directory(f"{topic}-0")
            before[topic] = disk.durable_bytes(file.path)
        disk.sync_directory("")
        for _ in range(3):
            rot.damage("m", disk, Rng(f"{seed}"))
        for topic, content in before.items():
            after = disk.durable_bytes(f"{topic}-0/{0:020d}.log")
            assert after[:MARKED_BYTES] != content[:MARKED_BYTES]
            end = -(-MARKED_BYTES // SECTOR_BYTES) * SECTOR_BYTES
            assert after[end:] == content[end:]
            assert rot.is_damaged("m", topic, 0)
            assert not rot.is_damaged("m", topic, 1)
            assert not rot.is_damaged("n", topic, 0)
        kinds.update(trace.counts)
    assert kinds == {"a bit was flipped", "a sector was misdirected"}
