"""`millrace group`: shows groups, resets their offsets, deletes them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace.admin import Admin
from millrace.groups import GroupDescription, MemberDescription
from millrace.records import TopicPartition
from millrace_cli.exits import Exit
from millrace_cli.group_progress import progress

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


@pytest.fixture
def group(millrace: Millrace, topic: str, tmp_path: Path) -> str:
    """A group without members that has read 3 of 5 records of partition 0, and nothing of 1.

    The records are stamped 1000, 2000, ... 5000.
    """
    rows = tmp_path / "rows"
    rows.write_text("".join(f'{{"t":{n}000}}\n' for n in range(1, 6)))
    flags = ("-p", "0", "-f", "json", "--timestamp-field", "t")
    assert millrace("produce", topic, *flags, str(rows)).exit_code == 0
    read = millrace("consume", topic, "--group", topic, "--count", "3")
    assert read.exit_code == 0, read.output
    return topic


@contextmanager
def a_member(millrace: Millrace, topic: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that follows the topic, and has been given all of it."""
    with millrace.running("consume", topic, "--group", topic, "--follow", *flags) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b'{"t":4000}\n'
        yield process


def committed(millrace: Millrace, group: str) -> dict[int, int]:
    described = json.loads(millrace("group", "describe", group, "--json").stdout)
    return {each["partition"]: each["committed"] for each in described["partitions"]}


def test_groups_are_listed_with_stable_columns(millrace: Millrace, group: str) -> None:
    assert f"{group}\tEmpty\t0\tconsumer\t2\n" in millrace("group", "list").stdout.splitlines(True)
    listed = json.loads(millrace("group", "list", "--json").stdout)
    expected = {"group": group, "state": "Empty", "members": 0, "protocol_type": "consumer"}
    assert expected | {"lag": 2} in listed


def test_the_lag_of_all_groups_is_shown_partition_by_partition(
    millrace: Millrace, group: str
) -> None:
    other = f"{group}-other"
    millrace("group", "reset", other, "--to-offset", "0", "-t", group)
    every = millrace("group", "lag").stdout.splitlines()
    mine = [line for line in every if line.startswith(group)]
    assert mine == [
        f"{group}\t{group}\t0\t3\t5\t2\t-",
        f"{other}\t{group}\t0\t0\t5\t5\t-",
        f"{other}\t{group}\t1\t0\t0\t0\t-",
    ]
    assert millrace("group", "lag", other).stdout.splitlines() == mine[1:]
    assert millrace("group", "lag", f"^{group}").stdout.splitlines() == mine
    listed = json.loads(millrace("group", "list", f"^{group}", "--json").stdout)
    assert [each["lag"] for each in listed] == [2, 5]


def test_a_member_without_a_commit_has_a_row_in_the_lag(millrace: Millrace, group: str) -> None:
    with a_member(millrace, group):
        rows = json.loads(millrace("group", "lag", group, "--json").stdout)
    assert [(row["partition"], row["lag"] is None) for row in rows] == [(0, False), (1, True)]
    assert rows[0]["member_id"] == rows[1]["member_id"] is not None


def test_describe_shows_how_far_a_group_without_members_is(millrace: Millrace, group: str) -> None:
    shown = millrace("group", "describe", group)
    assert shown.exit_code == 0, shown.output
    head, *rest = shown.stdout.splitlines()
    assert re.fullmatch(rf"group\t{group}\tEmpty\t\d+\t-\t-", head)
    assert rest == [f"partition\t{group}\t0\t3\t5\t2\t-"]


def test_describe_shows_members_and_their_partitions(millrace: Millrace, group: str) -> None:
    with a_member(millrace, group):
        lines = millrace("group", "describe", group).stdout.splitlines()
        described = json.loads(millrace("group", "describe", group, "--json").stdout)
    head, member, first, second = (line.split("\t") for line in lines)
    assert head[:3] == ["group", group, "Stable"]
    assert head[4] == "cooperative-sticky"
    assert head[5] == member[1]
    assert (member[0], member[3], member[5]) == ("member", "millrace-cli", f"{group}:0,1")
    assert first[:3] == ["partition", group, "0"]
    assert second == ["partition", group, "1", "-", "0", "-", member[1]]
    (in_json,) = described["members"]
    assert in_json["assignment"] == {group: [0, 1]}
    assert in_json["topics"] == [group]
    assert [each["member_id"] for each in described["partitions"]] == [member[1]] * 2


def test_the_assignors_of_a_member_are_a_setting(millrace: Millrace, group: str) -> None:
    with a_member(millrace, group, "-X", "assignors=range,sticky"):
        described = json.loads(millrace("group", "describe", group, "--json").stdout)
    assert described["assignor"] == "range"


@pytest.mark.parametrize(
    ("flags", "to"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 5),
        (("--to-offset", "4"), 4),
        (("--to-timestamp", "2000"), 1),
        (("--to-timestamp", "1970-01-01T00:00:04Z"), 3),
        (("--to-timestamp", "6000"), 5),
        (("--shift-by", "1"), 4),
        (("--shift-by", "-2"), 1),
        (("--shift-by", "-20"), 0),
    ],
)
def test_reset_moves_the_committed_offsets(
    millrace: Millrace, group: str, flags: tuple[str, ...], to: int
) -> None:
    planned = millrace("group", "reset", group, *flags, "--dry-run")
    assert (planned.exit_code, planned.stdout) == (0, f"{group}\t0\t3\t{to}\n")
    assert committed(millrace, group) == {0: 3}
    done = millrace("group", "reset", group, *flags)
    assert (done.exit_code, done.stdout) == (0, planned.stdout)
    assert committed(millrace, group) == {0: to}


def test_reset_takes_topics_and_partitions_by_name(millrace: Millrace, group: str) -> None:
    done = millrace("group", "reset", group, "--to-earliest", "--topic", f"{group}:1", "--json")
    assert json.loads(done.stdout) == [{"topic": group, "partition": 1, "committed": None, "to": 0}]
    assert committed(millrace, group) == {0: 3, 1: 0}
    whole = millrace("group", "reset", group, "--to-latest", "-t", group)
    assert whole.stdout == f"{group}\t0\t3\t5\n{group}\t1\t0\t0\n"


def test_reset_gives_a_new_group_its_first_offsets(millrace: Millrace, group: str) -> None:
    new = f"{group}-new"
    done = millrace("group", "reset", new, "--to-offset", "4", "-t", f"{group}:0")
    assert (done.exit_code, done.stdout) == (0, f"{group}\t0\t-\t4\n")
    assert millrace("consume", group, "-g", new).stdout == '{"t":5000}\n'


def test_a_group_with_members_is_neither_reset_nor_deleted(millrace: Millrace, group: str) -> None:
    with a_member(millrace, group):
        for command in (("reset", group, "--to-earliest"), ("delete", group, "--yes")):
            refused = millrace("group", *command)
            assert refused.exit_code == Exit.REFUSED
            (line,) = refused.stderr.splitlines()
            assert "has 1 member" in line
            assert "stop them" in line
        assert millrace("group", "list").stdout.count(f"{group}\tStable\t1\t") == 1


def test_a_deleted_group_is_gone_and_begins_anew(millrace: Millrace, group: str) -> None:
    assert millrace("group", "delete", group).exit_code == Exit.REFUSED  # no terminal answers yes
    assert committed(millrace, group) == {0: 3}
    assert millrace("group", "delete", group, "--yes").exit_code == 0
    assert millrace("group", "describe", group).exit_code == Exit.REFUSED
    assert len(millrace("consume", group, "-g", group).stdout.splitlines()) == 5


def test_several_groups_are_deleted_or_none(millrace: Millrace, group: str) -> None:
    names = [f"{group}-{n}" for n in (1, 2)]
    for name in names:
        millrace("group", "reset", name, "--to-earliest", "-t", group)
    assert millrace("group", "delete", names[0], "absent", "-y").exit_code == Exit.REFUSED
    assert millrace("group", "list", f"^{group}-").stdout.count("\n") == 2
    deleted = millrace("group", "delete", f"^{group}-", "--yes", "--json")
    assert json.loads(deleted.stdout) == [{"group": name, "error": None} for name in names]
    assert committed(millrace, group) == {0: 3}


def test_offsets_of_one_topic_are_deleted_and_others_stay(millrace: Millrace, group: str) -> None:
    other = f"{group}-other"
    assert millrace("topic", "create", other).exit_code == 0
    millrace("group", "reset", group, "--to-earliest", "-t", other, "-t", f"{group}:1")
    asked = millrace("group", "delete-offsets", group, "-t", group)
    assert asked.exit_code == Exit.REFUSED
    assert f"Delete 2 committed offsets of group {group} in {group}?" in asked.stderr
    done = millrace("group", "delete-offsets", group, "-t", f"{group}:0", "--yes")
    assert (done.exit_code, done.stdout) == (0, f"{group}\t0\t3\n")
    lines = millrace("group", "lag", group).stdout.splitlines()
    assert [line.split("\t")[1:4] for line in lines] == [[group, "1", "0"], [other, "0", "0"]]
    assert len(millrace("consume", group, "-g", group).stdout.splitlines()) == 5


def test_offsets_of_a_topic_that_a_member_reads_stay(millrace: Millrace, group: str) -> None:
    with a_member(millrace, group):
        refused = millrace("group", "delete-offsets", group, "-t", group, "-y", "--json")
        assert refused.exit_code == Exit.REFUSED
        (row, *_) = json.loads(refused.stdout)
        assert row["error"] is not None
        assert committed(millrace, group)[0] is not None


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("describe", "absent"), "no group 'absent'"),
        (("delete", "absent", "-y"), "no group 'absent'"),
        (("list", "absent"), "no group 'absent'"),
        (("lag", "^absent"), "no group matches '^absent'"),
        (("delete-offsets", "absent", "-t", "t", "-y"), "no group 'absent'"),
        (("delete-offsets", "{group}", "-t", "t", "-y"), "has no committed offset in topic t"),
        (("delete-offsets", "{group}", "-t", "{group}:1", "-y"), "has no committed offset for"),
        (("reset", "absent", "--to-earliest"), "name topics with --topic"),
        (("reset", "absent", "--to-earliest", "-t", "absent"), "no topic 'absent'"),
        (("reset", "{group}", "--to-latest", "-t", "{group}:0,2"), "no partition 2; it has 0 to 1"),
        (("reset", "{group}", "--to-offset", "6"), "has offsets from 0 to 5; 6 is not among them"),
        (("reset", "{group}", "--shift-by", "1", "-t", "{group}"), "to shift; reset it"),
    ],
)
def test_an_impossible_command_prints_one_line_and_changes_nothing(
    millrace: Millrace, group: str, command: tuple[str, ...], sentence: str
) -> None:
    refused = millrace("group", *(word.format(group=group) for word in command))
    assert refused.exit_code == Exit.REFUSED
    (line,) = refused.stderr.splitlines()
    assert sentence in line
    assert committed(millrace, group) == {0: 3}


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--to-earliest", "--to-latest"),
        ("--to-offset", "1", "--shift-by", "1"),
        ("--to-offset", "-1"),
        ("--to-timestamp", "noon"),
        ("--to-earliest", "--topic", "t:x"),
    ],
    ids=" ".join,
)
def test_a_reset_that_is_not_clear_is_exit_2_before_anything_is_sent(
    millrace: Millrace, closed_port: str, flags: tuple[str, ...]
) -> None:
    millrace.servers = closed_port
    ended = millrace("group", "reset", "g", *flags)
    assert ended.exit_code == Exit.USAGE
    assert ended.stderr


async def test_a_partition_that_is_not_there_has_an_owner_and_no_end(
    millrace: Millrace, topic: str
) -> None:
    """A member may have been given what was deleted since, or never was."""
    places = (TopicPartition(topic, 1), TopicPartition(topic, 7), TopicPartition("nowhere", 0))
    member = MemberDescription("m", None, "client", "host", (topic,), places)
    described = GroupDescription(topic, "Stable", 1, "consumer", "range", "m", (member,))
    async with Admin(millrace.servers) as admin:
        found = await progress(admin, described)
    assert [(each.where, each.end, each.lag, each.member_id) for each in found] == [
        (TopicPartition("nowhere", 0), None, None, "m"),
        (TopicPartition(topic, 1), 0, None, "m"),
        (TopicPartition(topic, 7), None, None, "m"),
    ]
