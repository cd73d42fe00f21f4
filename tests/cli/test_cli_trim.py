"""`millrace topic trim`: the oldest records go, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit
from tests.cli.terminal import Terminal

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


@pytest.fixture
def filled(millrace: Millrace, topic: str, tmp_path: Path) -> str:
    """Six records in partition 0, stamped 1000, 2000, ... 6000, and two in partition 1."""
    for partition, count in ((0, 6), (1, 2)):
        rows = tmp_path / f"rows-{partition}"
        rows.write_text("".join(f'{{"t":{n}000}}\n' for n in range(1, count + 1)))
        flags = ("-p", str(partition), "-f", "json", "--timestamp-field", "t")
        assert millrace("produce", topic, *flags, str(rows)).exit_code == 0
    return topic


def starts(millrace: Millrace, topic: str) -> list[int]:
    described = json.loads(millrace("topic", "describe", topic, "--json").stdout)
    return [each["start_offset"] for each in described["partitions"]]


@pytest.mark.parametrize(
    ("flags", "after"),
    [
        (("--offset", "2"), [2, 2]),
        (("--offset", "5", "--partition", "0"), [5, 0]),
        (("-o", "latest", "-p", "1"), [0, 2]),
        (("-o", "latest"), [6, 2]),
        (("--timestamp", "1500"), [1, 1]),
        (("--timestamp", "1970-01-01T00:00:04Z"), [3, 2]),
    ],
)
def test_a_trim_deletes_what_is_before_an_offset_or_a_time(
    millrace: Millrace, filled: str, flags: tuple[str, ...], after: list[int]
) -> None:
    planned = millrace("topic", "trim", filled, *flags, "--dry-run")
    assert starts(millrace, filled) == [0, 0]
    done = millrace("topic", "trim", filled, *flags, "--yes")
    assert (done.exit_code, done.stdout) == (0, planned.stdout)
    assert starts(millrace, filled) == after
    read = [
        int(n) for n in millrace("consume", filled, "-p", "0", "--format", "%o ").stdout.split()
    ]
    assert read == list(range(after[0], 6))


def test_a_trim_prints_the_start_before_and_after(millrace: Millrace, filled: str) -> None:
    assert millrace("topic", "trim", filled, "-o", "1", "-p", "1", "-y").exit_code == 0
    done = millrace("topic", "trim", filled, "--offset", "2", "--yes")
    assert done.stdout == f"{filled}\t0\t0\t2\n{filled}\t1\t1\t2\n"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("-o", "3"), "-1 has offsets from 0 to 2; 3 is not among them"),
        (("-o", "1", "-p", "7"), "has no partition 7; it has 0 to 1"),
    ],
)
def test_an_impossible_trim_deletes_nothing(
    millrace: Millrace, filled: str, flags: tuple[str, ...], sentence: str
) -> None:
    refused = millrace("topic", "trim", filled, *flags, "--yes")
    assert (refused.exit_code, refused.stdout) == (Exit.REFUSED, "")
    assert sentence in refused.stderr
    assert starts(millrace, filled) == [0, 0]


def test_a_compacted_topic_refuses_with_the_reason_of_the_broker(millrace: Millrace) -> None:
    millrace("topic", "create", "compacted", "-c", "cleanup.policy=compact")
    millrace.process("produce", "compacted", "-K", ":", stdin=b"a:1\n")
    refused = millrace("topic", "trim", "compacted", "-o", "latest", "-y", "--json")
    assert refused.exit_code == Exit.REFUSED
    (row,) = json.loads(refused.stdout)
    assert (row["start_offset"], refused.stderr) == (0, f"millrace: {row['error']}\n")
    assert starts(millrace, "compacted") == [0]


@pytest.mark.parametrize("flags", [(), ("-o", "1", "--timestamp", "1"), ("-o", "-1"), ("-o", "x")])
def test_a_trim_that_is_not_clear_is_exit_2_before_anything_is_sent(
    millrace: Millrace, closed_port: str, flags: tuple[str, ...]
) -> None:
    millrace.servers = closed_port
    assert millrace("topic", "trim", "t", *flags, "-y").exit_code == Exit.USAGE


def test_a_terminal_is_asked_and_no_deletes_nothing(millrace: Millrace, filled: str) -> None:
    for answer, after in ((b"n\n", [0, 0]), (b"y\n", [2, 2])):
        with Terminal.running(millrace, "topic", "trim", filled, "-o", "2") as terminal:
            terminal.wait_for("[y/N]")
            assert f"Delete up to 4 records of {filled}" in terminal.text()
            terminal.type(answer)
            assert terminal.wait() == (0 if after[0] else Exit.REFUSED)
        assert starts(millrace, filled) == after


def test_nothing_to_delete_is_not_asked(millrace: Millrace, filled: str) -> None:
    done = millrace("topic", "trim", filled, "-o", "0")
    assert (done.exit_code, done.stdout) == (0, f"{filled}\t0\t0\t0\n{filled}\t1\t0\t0\n")
