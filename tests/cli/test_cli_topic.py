"""`millrace topic`, and the failures of every client command."""

from __future__ import annotations

import json
import os
import pty
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit
from tests.hang_timeout import HANG_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


def test_created_topic_is_listed_with_stable_columns(millrace: Millrace) -> None:
    created = millrace("topic", "create", "listed", "-p", "3", "-c", "retention.ms=1000")
    assert (created.exit_code, created.stdout) == (0, "listed\t3\n")
    assert "listed\t3\t1\t0\n" in millrace("topic", "list").stdout.splitlines(keepends=True)
    topics = json.loads(millrace("topic", "list", "--json").stdout)
    expected = {"topic": "listed", "partitions": 3, "replication_factor": 1, "size_bytes": 0}
    assert expected in topics


def test_a_list_shows_named_and_matching_topics_with_their_bytes(millrace: Millrace) -> None:
    millrace("topic", "create", "picked-one", "picked-two", "unpicked")
    millrace.process("produce", "picked-two", stdin=b"a\nb\n")
    lines = millrace("topic", "list", "^picked").stdout.splitlines()
    assert lines[0] == "picked-one\t1\t1\t0"
    assert re.fullmatch(r"picked-two\t1\t1\t[1-9]\d+", lines[1])
    assert len(lines) == 2
    (described,) = json.loads(millrace("topic", "list", "picked-two", "--json").stdout)
    (partition,) = json.loads(millrace("topic", "describe", "picked-two", "-J").stdout)[
        "partitions"
    ]
    assert described["size_bytes"] == partition["size_bytes"] == int(lines[1].split("\t")[3])


def test_a_listed_name_that_is_not_there_is_an_error_beside_the_others(millrace: Millrace) -> None:
    millrace("topic", "create", "here")
    found = millrace("topic", "list", "here", "not-here")
    assert (found.exit_code, found.stdout) == (Exit.REFUSED, "here\t1\t1\t0\n")
    assert "no topic 'not-here'" in found.stderr
    matching = millrace("topic", "list", "^nothing-like-it")
    assert (matching.exit_code, matching.stdout) == (Exit.REFUSED, "")
    assert "no topic matches '^nothing-like-it'" in matching.stderr


def test_several_topics_are_created_or_none(millrace: Millrace) -> None:
    created = millrace("topic", "create", "several-1", "several-2", "-p", "2")
    assert (created.exit_code, created.stdout) == (0, "several-1\t2\nseveral-2\t2\n")
    refused = millrace("topic", "create", "several-3", "several-1", "bad name", "--json")
    assert refused.exit_code == Exit.REFUSED
    rows = json.loads(refused.stdout)
    assert [(row["topic"], row["created"], row["error"] is None) for row in rows] == [
        ("several-3", False, True),
        ("several-1", False, False),
        ("bad name", False, False),
    ]
    assert len(refused.stderr.splitlines()) == 2
    assert millrace("topic", "list", "^several").stdout.count("\n") == 2


def test_a_dry_run_creates_nothing(millrace: Millrace) -> None:
    checked = millrace("topic", "create", "dry", "-p", "3", "--dry-run")
    assert (checked.exit_code, checked.stdout) == (0, "dry\t3\n")
    assert millrace("topic", "create", "dry", "-c", "retention=1", "-n").exit_code == Exit.REFUSED
    assert millrace("topic", "list", "^dry$").exit_code == Exit.REFUSED


def test_describe_shows_offsets_and_the_source_of_each_setting(millrace: Millrace) -> None:
    millrace("topic", "create", "described", "-p", "2", "-c", "retention.ms=86400000")
    millrace.process("produce", "described", "-p", "1", stdin=b"a\nb\nc\n")
    lines = millrace("topic", "describe", "described").stdout.splitlines()
    assert lines[0] == "partition\t0\t0\t0\t0\t0\t0\t0"
    assert re.fullmatch(r"partition\t1\t0\t0\t0\t0\t3\t[1-9]\d+", lines[1])
    assert "config\tretention.ms\t86400000\ttopic" in lines
    assert "config\tcleanup.policy\tdelete\tdefault" in lines
    described = json.loads(millrace("topic", "describe", "described", "--json").stdout)
    assert [p["end_offset"] for p in described["partitions"]] == [0, 3]
    assert described["configs"]["retention.ms"] == {"value": "86400000", "source": "topic"}


def test_alter_sets_and_deletes_settings_and_widens(millrace: Millrace) -> None:
    millrace("topic", "create", "altered", "-c", "retention.ms=1000")
    changed = millrace(
        *("topic", "alter", "altered", "-p", "4"),
        *("-c", "segment.bytes=1048576", "--delete-config", "retention.ms"),
    )
    assert changed.exit_code == 0, changed.stderr
    described = json.loads(millrace("topic", "describe", "altered", "--json").stdout)
    assert len(described["partitions"]) == 4
    assert described["configs"]["segment.bytes"] == {"value": "1048576", "source": "topic"}
    assert described["configs"]["retention.ms"]["source"] == "default"


def test_delete_asks_unless_told_yes(millrace: Millrace) -> None:
    millrace("topic", "create", "doomed")
    assert millrace("topic", "delete", "doomed").exit_code == Exit.REFUSED
    assert "doomed\t1\t1\t0" in millrace("topic", "list").stdout
    assert millrace("topic", "delete", "doomed", "--yes").exit_code == 0
    assert "doomed" not in millrace("topic", "list").stdout


def test_a_topic_that_is_missing_is_not_asked_about(millrace: Millrace) -> None:
    refused = millrace("topic", "delete", "never-was")
    assert refused.exit_code == Exit.REFUSED
    (line,) = refused.stderr.splitlines()
    assert "no topic 'never-was'" in line


def test_several_topics_are_deleted_or_none(millrace: Millrace) -> None:
    millrace("topic", "create", "gone-1", "gone-2", "gone-3")
    refused = millrace("topic", "delete", "gone-1", "never-was", "--yes")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (Exit.REFUSED, 1)
    assert millrace("topic", "list", "^gone").stdout.count("\n") == 3
    asked = millrace("topic", "delete", "^gone-[12]$")
    assert asked.exit_code == Exit.REFUSED
    assert "Delete 2 topics with all their records: gone-1, gone-2?" in asked.stderr
    deleted = millrace("topic", "delete", "^gone-[12]$", "-y", "--json")
    names = [{"topic": "gone-1", "error": None}, {"topic": "gone-2", "error": None}]
    assert json.loads(deleted.stdout) == names
    assert millrace("topic", "list", "^gone").stdout == "gone-3\t1\t1\t0\n"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("topic", "describe", "absent"), "no topic 'absent'"),
        (("topic", "delete", "absent", "-y"), "no topic 'absent'"),
        (("topic", "alter", "absent", "-p", "3"), "no topic 'absent'"),
        (("topic", "create", "bad name"), "bad name"),
        (("topic", "create", "fine", "-c", "retention.ms=soon"), "retention.ms"),
        (("topic", "create", "fine", "-c", "retention=1"), "retention"),
    ],
)
def test_refusal_of_the_broker_is_one_line_and_exit_1(
    millrace: Millrace, command: tuple[str, ...], sentence: str
) -> None:
    ended = millrace(*command)
    assert ended.exit_code == Exit.REFUSED
    (line,) = ended.stderr.splitlines()
    assert sentence in line


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "create", "t", "-c", "no-equals-sign"),
        ("topic", "alter", "t"),
        ("topic", "list", "-s", "host:port"),
        ("topic", "frobnicate"),
        ("topic", "list", "^("),
        ("topic", "delete", "^(", "-y"),
        ("group", "lag", "^("),
        ("cluster", "config", "^("),
        ("cluster", "logs", "^("),
        ("consume", "t", "--from", "noon"),
        ("consume", "t", "--format", "%q"),
        ("produce", "t", "--key-field", "k"),
        ("produce", "t", "-f", "csv", "-K", ":"),
        ("produce", "t", "/no/such/file"),
        ("dissect", "/no/such/file"),
        ("dissect", "--as", "nonsense"),
        ("nc", "host:port"),
    ],
)
def test_wrong_usage_is_exit_2_before_anything_is_sent(
    millrace: Millrace, closed_port: str, command: tuple[str, ...]
) -> None:
    millrace.servers = closed_port
    ended = millrace(*command)
    assert ended.exit_code == Exit.USAGE
    assert ended.stderr


@pytest.mark.parametrize(
    "command",
    [("topic", "list"), ("consume", "t"), ("produce", "t", os.devnull), ("nc",)],
)
def test_no_broker_is_one_line_with_its_address_and_exit_69(
    millrace: Millrace, closed_port: str, command: tuple[str, ...]
) -> None:
    millrace.servers = closed_port
    ended = millrace(*command)
    assert ended.exit_code == Exit.UNAVAILABLE
    (line,) = ended.stderr.splitlines()
    assert closed_port in line
    assert ended.stdout == ""


def test_terminal_gets_a_table_with_headings(millrace: Millrace, topic: str) -> None:
    ours, theirs = pty.openpty()
    millrace.environment = {"COLUMNS": "300", "TERM": "xterm"}
    output = b""
    try:
        with millrace.running("topic", "list", stdout=theirs) as shown:
            os.close(theirs)
            # A terminal whose other end is closed fails the read; it holds 4 KiB at a time.
            with suppress(OSError):
                while part := os.read(ours, 1 << 16):
                    output += part
            assert shown.wait(timeout=HANG_TIMEOUT_S) == 0
    finally:
        os.close(ours)
    assert b"replicas" in output
    assert topic.encode() in output


def test_help_documents_every_exit_code(millrace: Millrace) -> None:
    shown = millrace("--help").stdout
    codes = [line.split()[0] for line in shown.partition("Exit codes:")[2].splitlines() if line]
    assert codes == [str(int(code)) for code in Exit]


@pytest.mark.parametrize("command", ["topic", "group"])
def test_a_name_that_is_not_there_is_refused_before_the_question(
    millrace: Millrace, command: str
) -> None:
    ended = millrace(command, "delete", "no-such-name")
    assert ended.exit_code == Exit.REFUSED
    assert "Delete" not in ended.output
    assert "no-such-name" in ended.stderr
