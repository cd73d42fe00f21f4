"""`millrace produce` and `millrace consume`: the same records out as in, in every format."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.records import Record
from millrace_cli.exits import Exit
from millrace_cli.formats.envelope import json_format
from millrace_cli.formats.input_lines import Lines
from millrace_cli.formats.record_text import record_format
from tests.hang_timeout import HANG_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

FULL = r"%p\t%o\t%T\t%k\t%s\n"


def records_of(millrace: Millrace, topic: str, *flags: str) -> list[dict[str, object]]:
    consumed = millrace("consume", topic, "--json", *flags)
    assert consumed.exit_code == 0, consumed.stderr
    return [json.loads(line) for line in consumed.stdout.split("\n") if line]


def test_lines_from_a_pipe_come_out_as_they_went_in(millrace: Millrace, topic: str) -> None:
    lines = "".join(f"line {n} ü\n" for n in range(30_000)).encode()
    sent = millrace.process("produce", topic, "-p", "0", stdin=lines)
    assert sent.returncode == 0, sent.stderr
    assert sent.stdout == b""
    assert b"sent 30,000 records" in sent.stderr
    assert millrace.process("consume", topic).stdout == lines


def test_files_are_sent_in_order_and_a_last_line_needs_no_end(
    millrace: Millrace, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"1\n\n2")
    (tmp_path / "b").write_bytes(b"3\n")
    sent = millrace("produce", topic, "-p", "1", str(tmp_path / "a"), str(tmp_path / "b"))
    assert sent.exit_code == 0, sent.stderr
    assert [r["value"] for r in records_of(millrace, topic)] == ["1", "", "2", "3"]


def test_key_separator_splits_at_the_first_one(millrace: Millrace, topic: str) -> None:
    millrace.process("produce", topic, "-K", r"\t", stdin=b"k\ta\tb\nno key\n")
    found = {(r["key"], r["value"]) for r in records_of(millrace, topic)}
    assert found == {("k", "a\tb"), (None, "no key")}


def test_json_takes_key_and_timestamp_from_fields(millrace: Millrace, topic: str) -> None:
    rows = [
        {"id": "a", "at": 1357034400000, "n": 1},
        {"id": 7, "at": "2013-01-01T10:00:00Z"},
        {"id": {"x": [1, 2]}, "at": "2013-01-01T05:00:00-05:00"},
        {"id": None, "at": "2013-01-01 10:00"},
        {"at": 1357034400000},
    ]
    stdin = b"\n".join(json.dumps(row).encode() for row in rows) + b"\n\n"
    sent = millrace.process(
        *("produce", topic, "-f", "json", "-k", "id", "--timestamp-field", "at", "-p", "0"),
        stdin=stdin,
    )
    assert sent.returncode == 0, sent.stderr
    found = records_of(millrace, topic)
    assert [json.loads(str(r["value"])) for r in found] == rows
    assert [r["key"] for r in found] == ["a", "7", '{"x":[1,2]}', None, None]
    assert {r["timestamp_ms"] for r in found} == {1357034400000}


def test_csv_rows_become_json_objects_of_text(
    millrace: Millrace, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(
        '\ufeffid,note\r\n1,"two\r\nlines, ""quoted"""\r\n2,plain\u2028one\r\n'.encode()
    )
    sent = millrace("produce", topic, "-f", "csv", "--key", "id", "-p", "0", str(file))
    assert sent.exit_code == 0, sent.stderr
    found = records_of(millrace, topic)
    assert [r["key"] for r in found] == ["1", "2"]
    assert [json.loads(str(r["value"])) for r in found] == [
        {"id": "1", "note": 'two\r\nlines, "quoted"'},
        {"id": "2", "note": "plain\u2028one"},
    ]


@pytest.mark.parametrize(
    ("flags", "stdin", "line"),
    [
        (("-f", "json"), b'{"a":1}\n{"a":\n', "stdin line 2 is not JSON"),
        (("-f", "json"), b"[1]\n", "stdin line 1 is not a JSON object"),
        (("-f", "json", "--timestamp-field", "t"), b'{"t":"noon"}\n', "stdin line 1 t: 'noon'"),
        (("-f", "csv"), b"a,b\n1,2\n3\n", "stdin line 3 has 1 field, and the header 2"),
        (("-f", "csv", "-k", "z"), b"a,b\n1,2\n", "stdin line 1 has no column 'z'"),
        (("-f", "csv"), b'a,b\n1,"2"x\n', "stdin line 2 is not CSV"),
        (("-f", "csv"), b"a,b\n1,\xff\n", "not UTF-8"),
    ],
)
def test_input_that_is_not_in_the_format_names_its_line_and_is_exit_65(
    millrace: Millrace, topic: str, flags: tuple[str, ...], stdin: bytes, line: str
) -> None:
    sent = millrace.process("produce", topic, *flags, stdin=stdin)
    assert sent.returncode == Exit.INPUT
    assert sent.stderr.decode().splitlines()[-1].startswith("millrace: ")
    assert line in sent.stderr.decode()
    assert records_of(millrace, topic) == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_compressed_records_are_read_back(
    millrace: Millrace, topic: str, tmp_path: Path, codec: str, acks: str
) -> None:
    (tmp_path / "in").write_bytes(b"the same line\n" * 500)
    sent = millrace("produce", topic, "-z", codec, "--acks", acks, str(tmp_path / "in"))
    assert sent.exit_code == 0, sent.stderr
    assert millrace("consume", topic).stdout == "the same line\n" * 500


def test_produce_to_a_partition_that_is_not_there_is_exit_1(
    millrace: Millrace, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(b"x\n")
    sent = millrace("produce", topic, "-p", "2", str(tmp_path / "in"))
    assert sent.exit_code == Exit.REFUSED
    assert "partition 2" in sent.stderr


def test_interrupt_ends_produce_cleanly_with_the_acked_count(
    millrace: Millrace, topic: str
) -> None:
    with millrace.running("consume", topic, "--follow") as reader:
        assert reader.stdout is not None
        with millrace.running("produce", topic, stdin=subprocess.PIPE) as writer:
            assert writer.stdin is not None
            writer.stdin.write(b"typed\n")
            writer.stdin.flush()
            # Sent as soon as it was typed, while stdin stays open.
            assert reader.stdout.readline() == b"typed\n"
            writer.send_signal(signal.SIGINT)
            # While stdin is still open, whose end would be an end like any other.
            assert writer.wait(timeout=HANG_TIMEOUT_S) == Exit.INTERRUPTED
            assert writer.stderr is not None
            stderr = writer.stderr.read()
        assert b"sent 1 record," in stderr
        assert b"Traceback" not in stderr
        reader.send_signal(signal.SIGINT)
        _, stderr = reader.communicate(timeout=HANG_TIMEOUT_S)
    assert (reader.returncode, stderr) == (Exit.INTERRUPTED, b"")


def test_consume_stops_quietly_when_its_reader_has_gone(millrace: Millrace, topic: str) -> None:
    millrace.process("produce", topic, stdin=b"0123456789\n" * 200_000)
    with millrace.running("consume", topic) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"0123456789\n"
        reader.stdout.close()
        assert reader.stderr is not None
        assert reader.stderr.read() == b""
        assert reader.wait(timeout=HANG_TIMEOUT_S) == Exit.PIPE_CLOSED


@pytest.fixture
def ten(millrace: Millrace, topic: str, tmp_path: Path) -> str:
    """Ten records in partition 0, a second apart from 1000 s on, and two in partition 1."""
    lines = [f'{{"t":{1_000_000 + 1000 * n},"n":{n}}}\n' for n in range(10)]
    for partition, some in (("0", lines), ("1", lines[:2])):
        file = tmp_path / partition
        file.write_text("".join(some))
        flags = ("-f", "json", "--timestamp-field", "t", "-p", partition)
        sent = millrace("produce", topic, *flags, str(file))
        assert sent.exit_code == 0, sent.stderr
    return topic


@pytest.mark.parametrize(
    ("flags", "offsets"),
    [
        ((), [(0, n) for n in range(10)] + [(1, 0), (1, 1)]),
        (("-p", "1"), [(1, 0), (1, 1)]),
        (("-p", "0", "--from", "7"), [(0, 7), (0, 8), (0, 9)]),
        (("-p", "0", "--from", "10"), []),
        (("--from", "-1"), [(0, 9), (1, 1)]),
        (("--from", "latest"), []),
        (("--from", "@1007000"), [(0, 7), (0, 8), (0, 9)]),
        (("--from", "1970-01-01T00:16:47.001Z"), [(0, 8), (0, 9)]),
        (("-p", "0", "--count", "2"), [(0, 0), (0, 1)]),
        (("-p", "1", "--count", "5"), [(1, 0), (1, 1)]),
    ],
)
def test_consume_begins_and_stops_where_it_is_told(
    millrace: Millrace, ten: str, flags: tuple[str, ...], offsets: list[tuple[int, int]]
) -> None:
    found = records_of(millrace, ten, *flags)
    assert sorted((int(str(r["partition"])), int(str(r["offset"]))) for r in found) == offsets


def test_consume_from_an_offset_outside_the_log_names_the_valid_offsets(
    millrace: Millrace, ten: str
) -> None:
    ended = millrace("consume", ten, "--from", "5")
    assert ended.exit_code == Exit.REFUSED
    assert f"{ten}-1 has offsets from 0 to 2" in ended.stderr
    ended = millrace("consume", ten, "-p", "9")
    assert ended.exit_code == Exit.REFUSED
    assert "no partition 9" in ended.stderr


def test_format_string_writes_every_field(millrace: Millrace, ten: str) -> None:
    shown = millrace(
        "consume", ten, "-p", "1", "-n", "1", "--format", r"%t %p %o %T %s %S %K {}%%\n"
    )
    assert shown.stdout == ten + ' 1 0 1000000 {"t":1000000,"n":0} 19 -1 {}%\n'


RAW = Record.of("t", 3, 4, 5, b"\xffkey", b"a\x1b[31m\n\xc3\xbc\x80", (("h", b"v"), ("n", None)))


def test_a_pipe_gets_all_bytes_unchanged_and_a_terminal_no_control_characters() -> None:
    piped = record_format("%k %s %h", escaped=False)(RAW)
    assert piped == b"\xffkey a\x1b[31m\n\xc3\xbc\x80 h=v,n="
    shown = record_format("%k %s", escaped=True)(RAW)
    assert shown.decode() == "\\xffkey a\\x1b[31m\nü\\x80"


def test_json_keeps_bytes_that_are_no_text_as_base64() -> None:
    shown = json.loads(json_format(escaped=False)(RAW))
    assert shown["key"] == {"base64": "/2tleQ=="}
    assert shown["headers"] == [["h", "v"], ["n", None]]
    keyless = Record.of("t", 0, 0, 0, None, b"")
    assert json.loads(json_format(escaped=False)(keyless))["key"] is None


@given(st.binary(), st.lists(st.integers(1, 9)), st.booleans())
def test_lines_are_the_same_however_the_input_is_cut(
    data: bytes, sizes: list[int], quoted: bool
) -> None:
    whole = Lines(quoted=quoted)
    expected = whole.feed(data) + whole.end()
    pieces = Lines(quoted=quoted)
    found = []
    position = 0
    for size in sizes:
        found += pieces.feed(data[position : position + size])
        position += size
    found += pieces.feed(data[position:]) + pieces.end()
    assert found == expected
    assert pieces.count == whole.count == len(expected)
