"""`millrace consume --group`: members print each record of a topic once, and commit it."""

from __future__ import annotations

import signal
import subprocess
from typing import IO, TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit
from tests.hang_timeout import HANG_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


def produce(millrace: Millrace, topic: str, *values: str, partition: int = 0) -> None:
    lines = "".join(f"{value}\n" for value in values).encode()
    sent = millrace.process("produce", topic, "-p", str(partition), stdin=lines)
    assert sent.returncode == 0, sent.stderr


def consumed(millrace: Millrace, topic: str, *flags: str) -> list[str]:
    ended = millrace("consume", topic, "--group", topic, *flags)
    assert ended.exit_code == 0, ended.output
    return ended.stdout.splitlines()


def lines_of(process: subprocess.Popen[bytes], count: int) -> list[str]:
    stdout: IO[bytes] | None = process.stdout
    assert stdout is not None
    return [stdout.readline().decode().rstrip("\n") for _ in range(count)]


def test_a_group_resumes_behind_the_printed_records(millrace: Millrace, topic: str) -> None:
    produce(millrace, topic, "a", "b", "c", "d", "e")
    assert consumed(millrace, topic, "--count", "2") == ["a", "b"]
    assert consumed(millrace, topic) == ["c", "d", "e"]
    assert consumed(millrace, topic) == []
    produce(millrace, topic, "f", partition=1)
    assert consumed(millrace, topic) == ["f"]


def test_every_group_gets_every_record(millrace: Millrace, topic: str) -> None:
    produce(millrace, topic, "a", "b")
    for group in ("one", "other"):
        ended = millrace("consume", topic, "-g", f"{topic}-{group}")
        assert ended.stdout.splitlines() == ["a", "b"]


def test_from_says_where_a_group_begins_that_has_committed_nothing(
    millrace: Millrace, topic: str
) -> None:
    millrace.process(
        *("produce", topic, "-p", "0", "-f", "json", "--timestamp-field", "t"),
        stdin=b'{"t":1000}\n{"t":2000}\n{"t":3000}\n',
    )
    assert consumed(millrace, topic, "--from", "@2000", "-n", "1") == ['{"t":2000}']
    assert consumed(millrace, topic, "--from", "@1000") == ['{"t":3000}']
    late = millrace("consume", topic, "-g", f"{topic}-late", "--from", "latest")
    assert (late.exit_code, late.stdout) == (0, "")


def test_a_member_that_does_not_follow_ends_and_leaves_its_share_to_the_others(
    millrace: Millrace, topic: str
) -> None:
    produce(millrace, topic, "a")
    with millrace.running("consume", topic, "-g", topic, "--follow") as follower:
        assert lines_of(follower, 1) == ["a"]
        assert consumed(millrace, topic) == []
        produce(millrace, topic, "b")
        produce(millrace, topic, "c", partition=1)
        assert sorted(lines_of(follower, 2)) == ["b", "c"]
        follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=HANG_TIMEOUT_S) == Exit.INTERRUPTED
    # It has left, so the group does not wait for its session to end; and it has committed.
    produce(millrace, topic, "d")
    assert consumed(millrace, topic) == ["d"]


@pytest.mark.parametrize("flags", [("-p", "0"), ("--from", "5"), ("--from", "-5")], ids=" ".join)
def test_options_that_the_group_decides_are_refused(
    millrace: Millrace, closed_port: str, flags: tuple[str, ...]
) -> None:
    millrace.servers = closed_port
    ended = millrace("consume", "t", "--group", "g", *flags)
    assert ended.exit_code == Exit.USAGE
    assert flags[0].replace("-p", "--partition") in ended.stderr


def test_a_group_that_shares_a_topic_that_is_not_there_is_refused(millrace: Millrace) -> None:
    ended = millrace("consume", "absent", "-g", "absent")
    assert ended.exit_code == Exit.REFUSED
    (line,) = ended.stderr.splitlines()
    assert "no topic 'absent'" in line
