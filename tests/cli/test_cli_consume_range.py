"""What `millrace consume` reads: topics, starts, ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

Consumed = Callable[..., list[str]]


@pytest.fixture
def numbered(millrace: Millrace, topic: str) -> str:
    """Partition 0 has 0 to 5 and partition 1 has 10 to 12; a record is as many seconds old."""
    for partition, numbers in (("0", range(6)), ("1", range(10, 13))):
        lines = "".join(f'{{"t":{1000 * n},"n":{n}}}\n' for n in numbers).encode()
        flags = ("-f", "json", "--timestamp-field", "t", "-p", partition)
        assert millrace.process("produce", topic, *flags, stdin=lines).returncode == 0
    return topic


@pytest.fixture
def consumed(millrace: Millrace, numbered: str) -> Consumed:
    """The numbers that `consume` prints with some flags, sorted."""

    def consume(*flags: str, names: tuple[str, ...] = (numbered,)) -> list[str]:
        ended = millrace("consume", *names, "--format", r"%T\n", *flags)
        assert ended.exit_code == 0, ended.stderr
        return sorted(str(int(line) // 1000) for line in ended.stdout.splitlines())

    return consume


def test_offsets_by_partition_read_these_partitions_only(consumed: Consumed) -> None:
    assert consumed("--from", "0:4") == ["4", "5"]
    assert consumed("--from", "1:2,0:5") == ["12", "5"]


def test_until_stops_before_a_time(consumed: Consumed) -> None:
    assert consumed("--until", "@3000") == ["0", "1", "2"]
    assert consumed("--until", "1970-01-01T00:00:11Z", "--from", "@4000") == ["10", "4", "5"]
    assert consumed("--until", "@0") == []
    assert len(consumed("--until", "2040-01-01")) == 9


def test_until_stops_a_group_too(consumed: Consumed, numbered: str) -> None:
    assert consumed("--group", numbered, "--until", "@3000") == ["0", "1", "2"]
    assert consumed("--group", numbered, "--until", "@11000") == ["10", "3", "4", "5"]
    assert consumed("--group", numbered) == ["11", "12"]


@pytest.fixture
def pair(millrace: Millrace, topic: str) -> tuple[str, str]:
    """Two topics with a record each."""
    names = (f"{topic}-a", f"{topic}-b")
    for name in names:
        assert millrace("topic", "create", name).exit_code == 0
        assert millrace.process("produce", name, stdin=name.encode()).returncode == 0
    return names


@pytest.mark.parametrize("group", [True, False], ids=["group", "no group"])
def test_several_topics_and_those_that_match_a_pattern(
    millrace: Millrace, topic: str, pair: tuple[str, str], group: bool
) -> None:
    for number, names in enumerate([pair, (f"^{topic}-[ab]$",), (pair[0], f"^{topic}-b")]):
        flags = ("-g", f"{topic}-{number}") if group else ()
        ended = millrace("consume", *names, "--format", r"%t %s\n", *flags)
        assert ended.exit_code == 0, ended.stderr
        assert sorted(ended.stdout.splitlines()) == [f"{name} {name}" for name in pair]


def test_a_pattern_without_a_match_is_exit_1(millrace: Millrace) -> None:
    ended = millrace("consume", "^no-such-topic$")
    assert ended.exit_code == Exit.REFUSED
    assert "no topic matches '^no-such-topic$'" in ended.stderr


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("t", "--from", "0:1", "-p", "0"), "leave out --partition"),
        (("t", "u", "--from", "0:1"), "partitions of one topic"),
        (("t", "--from", "0:x"), "'0:x' is neither"),
        (("t", "--from", "1969-12-31"), "'1969-12-31' is before 1970"),
        (("t", "--until", "1969-12-31"), "'1969-12-31' is before 1970"),
        (("t", "--until", "5"), "'5' is neither @MS nor ISO 8601"),
        (("t", "--until", "@5", "--follow"), "--until excludes --follow"),
        (("^(",), "'^(' is not a regular expression"),
        (("t", "--json", "-D", ""), "--json excludes"),
        (("t", "--format", "%s", "-K", ":"), "--format excludes"),
        (("t", "-g", "g", "-X", "auto_commit=true"), "auto_commit: the command commits"),
        (("t", "-g", "g", "-X", "assignors=rang"), "the names are range, roundrobin, sticky"),
        (("t", "-X", "group=g"), "-X group is no setting: see --help"),
    ],
)
def test_flags_that_do_not_fit_are_exit_2_before_a_connection(
    millrace: Millrace, closed_port: str, flags: tuple[str, ...], problem: str
) -> None:
    millrace.servers = closed_port
    ended = millrace("consume", *flags)
    assert ended.exit_code == Exit.USAGE, ended.stderr
    assert problem in ended.stderr
