"""The flags of `millrace produce`, and what is refused before anything is sent."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace.records import Record
from millrace.sync import Consumer
from millrace_cli.exits import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


def stored(millrace: Millrace, topic: str, count: int) -> list[Record]:
    with Consumer(millrace.servers, topic) as consumer:
        return list(itertools.islice(consumer, count))


def test_headers_and_a_timestamp_are_those_of_every_record(millrace: Millrace, topic: str) -> None:
    flags = ("-H", "a=1=2", "-H", "b=", "-H", "c", "--timestamp", "2013-01-01T10:00:00Z")
    sent = millrace.process("produce", topic, "-p", "0", *flags, stdin=b"x\ny\n")
    assert sent.returncode == 0, sent.stderr
    for record in stored(millrace, topic, 2):
        assert record.headers == (("a", b"1=2"), ("b", b""), ("c", None))
        assert record.timestamp_ms == 1_357_034_400_000


def test_headers_come_behind_those_of_a_json_line(millrace: Millrace, topic: str) -> None:
    line = b'{"value": null, "headers": [["own", "1"]]}\n'
    sent = millrace.process("produce", topic, "-f", "json-envelope", "-H", "a=b", stdin=line)
    assert sent.returncode == 0, sent.stderr
    (record,) = stored(millrace, topic, 1)
    assert (record.value, record.headers) == (None, (("own", b"1"), ("a", b"b")))


def test_an_empty_value_is_a_tombstone_if_asked_for(millrace: Millrace, topic: str) -> None:
    sent = millrace.process("produce", topic, "-p", "0", "-K", ":", "-Z", stdin=b"k:\nk:v\n")
    assert sent.returncode == 0, sent.stderr
    assert [(each.key, each.value) for each in stored(millrace, topic, 2)] == [
        (b"k", None),
        (b"k", b"v"),
    ]
    assert millrace("consume", topic, "-K", "=", "-Z").stdout == "k=NULL\nk=v\n"
    assert millrace("consume", topic, "-K", "=").stdout == "k=\nk=v\n"


def test_a_dash_is_stdin_between_files(millrace: Millrace, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"file\n")
    sent = millrace.process("produce", topic, "-p", "0", str(file), "-", str(file), stdin=b"stdin")
    assert sent.returncode == 0, sent.stderr
    assert [each.value for each in stored(millrace, topic, 3)] == [b"file", b"stdin", b"file"]


def test_the_summary_counts_in_words_that_fit(millrace: Millrace, topic: str) -> None:
    assert b"sent 1 record, 1 byte in" in millrace.process("produce", topic, stdin=b"x").stderr
    assert b"sent 0 records, 0 bytes in" in millrace.process("produce", topic).stderr


def test_an_empty_input_for_a_topic_or_partition_that_is_missing_is_exit_1(
    millrace: Millrace, topic: str
) -> None:
    sent = millrace.process("produce", "no-such-topic")
    assert sent.returncode == Exit.REFUSED
    assert b"no topic 'no-such-topic'" in sent.stderr
    sent = millrace.process("produce", topic, "-p", "99")
    assert sent.returncode == Exit.REFUSED
    assert f"{topic} has no partition 99; it has 0 to 1" in sent.stderr.decode()


def test_a_setting_of_the_client_takes_effect(millrace: Millrace, topic: str) -> None:
    flags = ("-X", "max_request_bytes=1000", "-X", "batch.bytes=1000", "-X", "client_id=7")
    sent = millrace.process("produce", topic, *flags, stdin=b"x" * 2000)
    assert sent.returncode == Exit.REFUSED
    assert b"1000" in sent.stderr
    assert millrace("consume", topic).stdout == ""


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("-X", "linger=1"), "linger: no such setting; did you mean linger_ms?"),
        (("-X", "linger_ms"), "'linger_ms' is not NAME=VALUE"),
        (("-X", "linger_ms=soon"), "linger_ms: 'soon' is not a whole number"),
        (("-H", "=v"), "has no name before ="),
        (("-D", ""), "--delimiter is empty"),
        (("-D", r"\q"), "unknown escape"),
        (("-f", "csv", "-D", ";"), "are for lines"),
        (("-f", "file", "-k", "id"), "file has no fields"),
        (("-f", "json", "-Z"), "json has a null of its own"),
        (("--timestamp", "noon"), "'noon' is neither milliseconds"),
        (("-f", "json", "--timestamp", "5", "--timestamp-field", "t"), "give one of them"),
        (("no-such-file",), "no-such-file: there is no such file"),
        (("/tmp",), "/tmp is a directory"),
        (("a-file-with-\x1b-in-its-name",), r"a-file-with-\x1b-in-its-name: there is no such"),
    ],
)
def test_flags_that_do_not_fit_are_exit_2_before_a_connection(
    millrace: Millrace, closed_port: str, flags: tuple[str, ...], problem: str
) -> None:
    millrace.servers = closed_port
    sent = millrace.process("produce", "t", *flags)
    assert sent.returncode == Exit.USAGE, sent.stderr
    assert problem in sent.stderr.decode()


def test_a_json_summary_is_printed_after_a_failure_too(millrace: Millrace, topic: str) -> None:
    lines = b'{"n": 1}\n{"n": 2}\n{"n": \n'
    done = millrace.process("produce", topic, "-f", "json", "--json", stdin=lines)
    assert done.returncode == Exit.INPUT
    summary = json.loads(done.stdout)
    seconds = summary.pop("seconds")
    assert summary == {"topic": topic, "records": 0, "bytes": 0, "unacknowledged": 0}
    assert seconds >= 0
    assert b"line 3" in done.stderr and b"sent" not in done.stderr
