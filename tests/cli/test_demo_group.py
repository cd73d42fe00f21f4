"""The group's part of the demo: its checks, and its messages when it cannot run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.records import Record
from millrace_cli.demo.group_run import _check_ledger, _Run
from millrace_cli.demo.ledger import FAULTS_MAX, Ledger
from millrace_cli.demo.member import runs
from millrace_cli.exits import CommandError, Exit
from tests.hang_timeout import HANG_TIMEOUT_S

KILLED, OTHER, FOURTH = 1, 2, 4
Line = tuple[int, int, int, int, str]


def account(*lines: Line, committed: Sequence[tuple[int, int, int]] = ()) -> Ledger:
    """Of partitions 0 and 1 with ten records each; a line: member, partition, first, last, key."""
    ledger = Ledger({0: 10, 1: 10})
    for at_ns, (member, partition, first_offset, last_offset, key) in enumerate(lines):
        ledger.processed(member, at_ns, [[partition, first_offset, last_offset, [key]]])
    for member, partition, offset in committed:
        ledger.committed(member, [(partition, offset)])
    return ledger


KILL: list[Line] = [
    (OTHER, 1, 0, 4, "AA"),
    (KILLED, 0, 0, 3, "UA"),
    (KILLED, 0, 4, 5, "UA"),
    (OTHER, 1, 5, 9, "AA"),
]
"""The killed one has processed up to 5 and committed up to 4, exclusive."""
COMMITTED = [(KILLED, 0, 4), (OTHER, 1, 10)]


def test_uncommitted_flights_of_the_killed_member_may_come_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = account(*KILL, (FOURTH, 0, 4, 9, "UA"), committed=COMMITTED)
    assert ledger.faults(KILLED) == []
    assert ledger.repeated() == {(0, 4): 2, (0, 5): 2}
    assert ledger.window(KILLED) == {(0, 4), (0, 5)}
    assert _check_ledger(ledger, KILLED) is Exit.OK
    assert "group: 20 flights" in capsys.readouterr().err


def test_it_is_done_when_the_group_has_committed_every_partition() -> None:
    ledger = account(*KILL, committed=COMMITTED)
    assert [ledger.is_done, ledger.left([0]), ledger.left([1])] == [False, 6, 0]
    ledger.committed(FOURTH, [(0, 10)])
    assert [ledger.is_done, ledger.left([0]), ledger.left([1])] == [True, 0, 0]


@pytest.mark.parametrize(
    ("then", "fault"),
    [
        pytest.param(
            [(FOURTH, 0, 4, 8, "UA")], "partition 0, offset 9: never processed", id="lost"
        ),
        pytest.param(
            [(FOURTH, 0, 7, 9, "UA"), (OTHER, 0, 6, 6, "UA")],
            "member 4, partition 0, offset 7: 6 was not processed before it",
            id="skipped",
        ),
        pytest.param(
            [(FOURTH, 0, 5, 9, "UA"), (FOURTH, 0, 4, 4, "UA")],
            "member 4, partition 0, offset 4: the member had processed it, or a later offset",
            id="backwards",
        ),
        pytest.param(
            [(FOURTH, 0, 4, 9, "AA")], "key AA: is in several partitions: 0, 1", id="key torn apart"
        ),
        pytest.param(
            [(FOURTH, 0, 3, 9, "UA")],
            "partition 0, offset 3: processed 2 times, and member 1 had committed it",
            id="again though committed",
        ),
        pytest.param(
            [(FOURTH, 1, 9, 9, "AA"), (FOURTH, 0, 4, 9, "UA")],
            "partition 1, offset 9: processed 2 times, and member 1 had committed it",
            id="again though another's",
        ),
        pytest.param(
            [(OTHER, 0, 4, 4, "UA"), (FOURTH, 0, 4, 9, "UA")],
            "partition 0, offset 4: processed 3 times, and two times are the maximum",
            id="three times",
        ),
    ],
)
def test_a_wrong_count_is_named_and_is_exit_1(
    then: list[Line], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = account(*KILL, *then, committed=COMMITTED)
    ledger.refused(OTHER, [(1, "the member is not in the group")])
    assert ledger.faults(KILLED) == [fault]
    assert _check_ledger(ledger, KILLED) is Exit.REFUSED
    assert capsys.readouterr().err.splitlines() == [
        "group: the result is wrong",
        f"  {fault}",
        "  a commit was refused: member 2, partition 1: the member is not in the group",
    ]


def test_of_many_faults_a_few_are_named_and_the_rest_counted() -> None:
    faults = account().faults(KILLED)
    assert len(faults) == FAULTS_MAX + 1
    assert faults[-1] == "and 10 more of this kind"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.sampled_from("ab"))))
def test_runs_are_the_records_in_their_order(seen: list[tuple[int, int, str]]) -> None:
    found = runs(
        Record.of("flights", partition, offset, 0, key.encode(), b"")
        for partition, offset, key in seen
    )
    assert [
        (partition, offset)
        for partition, first_offset, last_offset, _ in found
        for offset in range(first_offset, last_offset + 1)
    ] == [(partition, offset) for partition, offset, _ in seen]
    at = 0
    for _, first_offset, last_offset, keys in found:
        count = last_offset - first_offset + 1
        assert sorted(keys) == sorted({key for _, _, key in seen[at : at + count]})
        at += count


async def test_a_member_that_ends_by_itself_ends_the_demo_with_a_sentence(
    closed_port: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = _Run(Ledger({0: 1}))
    try:
        with pytest.raises(CommandError, match=r"member \d of the group failed"):
            async with asyncio.timeout(HANG_TIMEOUT_S):
                await run.run(closed_port, "flights")
    finally:
        for member in run.members:
            await member.kill()
    assert "ConnectionFailed" in capfd.readouterr().err
