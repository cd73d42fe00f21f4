"""Records out of a topic and into another by way of stdout and stdin: the same bytes."""

from __future__ import annotations

import itertools
import struct
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.records import Headers
from millrace.sync import Consumer, Producer
from millrace_cli.exits import Exit
from millrace_cli.formats.envelope import read_envelope
from tests.cli.conftest import Millrace, Serving

NEWEST_MS = 1_700_000_000_000


class Sent(NamedTuple):
    """What a round trip keeps of a record."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


DATA = st.none() | st.binary(max_size=40) | st.text(max_size=40).map(str.encode)
RECORDS = st.lists(
    st.builds(
        Sent,
        DATA,
        DATA,
        st.lists(st.tuples(st.text(max_size=8), DATA), max_size=3).map(tuple),
        st.integers(0, NEWEST_MS),
    ),
    min_size=1,
    max_size=20,
)


def create(millrace: Millrace) -> str:
    name = uuid.uuid4().hex
    created = millrace("topic", "create", name, "--config", "retention.ms=-1")
    assert created.exit_code == 0, created.output
    return name


def send(millrace: Millrace, topic: str, records: list[Sent]) -> None:
    with Producer(millrace.servers) as producer:
        producer.send_many(
            topic,
            [each.value for each in records],
            keys=[each.key for each in records],
            headers=[each.headers for each in records],
            timestamps_ms=[each.timestamp_ms for each in records],
        )


def stored(millrace: Millrace, topic: str, count: int) -> list[Sent]:
    with Consumer(millrace.servers, topic) as consumer:
        found = list(itertools.islice(consumer, count))
    return [Sent(each.key, each.value, each.headers, each.timestamp_ms) for each in found]


@given(RECORDS)
@settings(max_examples=25)
def test_json_lines_become_the_same_records_again(
    broker: Serving, tmp_path_factory: pytest.TempPathFactory, records: list[Sent]
) -> None:
    millrace = Millrace(broker.servers)
    there, back = create(millrace), create(millrace)
    send(millrace, there, records)
    printed = millrace("consume", there, "--json")
    assert printed.exit_code == 0, printed.stderr
    file = tmp_path_factory.getbasetemp() / "lines"
    file.write_bytes(printed.stdout_bytes)
    sent = millrace("produce", back, "-f", "json-envelope", str(file))
    assert sent.exit_code == 0, sent.stderr
    assert stored(millrace, back, len(records)) == records


def test_a_pipe_from_consume_to_produce_keeps_every_byte(millrace: Millrace) -> None:
    there, back = create(millrace), create(millrace)
    everything = Sent(bytes(range(256)), bytes(range(255, -1, -1)), (("h", b"\xff\n"),), 5)
    send(millrace, there, [everything] * 3)
    lines = millrace.process("consume", there, "--json").stdout
    assert millrace.process("produce", back, "-f", "json-envelope", stdin=lines).returncode == 0
    assert stored(millrace, back, 3) == [everything] * 3


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=20))
@settings(max_examples=25)
def test_values_come_out_byte_for_byte(broker: Serving, values: list[bytes]) -> None:
    millrace = Millrace(broker.servers)
    topic = create(millrace)
    send(millrace, topic, [Sent(None, value, (), 1) for value in values])
    assert millrace("consume", topic, "-D", "").stdout_bytes == b"".join(values)
    sized = millrace("consume", topic, "--format", "%R%s").stdout_bytes
    assert list(unpacked(sized)) == values


def unpacked(data: bytes) -> list[bytes | None]:
    values: list[bytes | None] = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        values.append(None if size < 0 else data[position : position + size])
        position += max(size, 0)
    return values


def test_a_null_value_has_the_size_minus_one(millrace: Millrace) -> None:
    topic = create(millrace)
    send(millrace, topic, [Sent(b"k", None, (), 1), Sent(b"k", b"", (), 1)])
    assert unpacked(millrace("consume", topic, "--format", "%R%s").stdout_bytes) == [None, b""]


@pytest.mark.parametrize("delimiter", [r"\n", r"\0", r"\r\n", "--", r"\xff"])
def test_a_delimiter_cuts_the_input_and_is_all_that_is_left_out(
    millrace: Millrace, delimiter: str
) -> None:
    topic = create(millrace)
    end = delimiter.replace(r"\n", "\n").replace(r"\r", "\r").replace(r"\0", "\0").encode()
    end = b"\xff" if delimiter == r"\xff" else end
    values = [b"a\r", b"", b"-b\xc3\xbc\xfe", b"\tc"]
    sent = millrace.process("produce", topic, "-D", delimiter, stdin=end.join(values))
    assert sent.returncode == 0, sent.stderr
    assert [each.value for each in stored(millrace, topic, 4)] == values
    printed = millrace.process("consume", topic, "-D", delimiter).stdout
    assert printed == end.join(values) + end


def test_a_file_is_one_record(millrace: Millrace, tmp_path: Path) -> None:
    topic = create(millrace)
    contents = [b"one\n\r\ntwo\n", b"", bytes(range(256)) * 3000]
    files = []
    for number, content in enumerate(contents):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(content)
    sent = millrace("produce", topic, "-f", "file", *map(str, files))
    assert sent.exit_code == 0, sent.stderr
    piped = millrace.process("produce", topic, "-f", "file", "-", stdin=b"piped\n\n")
    assert piped.returncode == 0, piped.stderr
    assert [each.value for each in stored(millrace, topic, 4)] == [*contents, b"piped\n\n"]


def test_a_record_may_be_as_large_as_its_topic_allows(millrace: Millrace, topic: str) -> None:
    large = b"0123456789abcdef" * 300_000
    refused = millrace.process("produce", topic, "-f", "file", stdin=large)
    assert refused.returncode == Exit.REFUSED
    assert b"max.message.bytes of" in refused.stderr
    assert millrace("topic", "alter", topic, "-c", "max.message.bytes=6000000").exit_code == 0
    sent = millrace.process("produce", topic, "-f", "file", stdin=large)
    assert sent.returncode == 0, sent.stderr
    assert millrace.process("consume", topic, "-D", "").stdout == large


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"key": "k"}', 'has no "value"'),
        (b'{"value": 7}', "value: must be text, null, or"),
        (b'{"value": {"base64": "?"}}', "value: "),
        (b'{"value": "\\ud800"}', "value: "),
        (b'{"value": "v", "headers": {"a": "b"}}', "headers: must be a list of"),
        (b'{"value": "v", "headers": [["\\ud800", null]]}', "headers: "),
        (b'{"value": "v", "timestamp_ms": -1}', "timestamp_ms: -1 is not"),
        (b'{"value": "v", "timestamp": 1}', "has an unknown field 'timestamp'"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_number(
    millrace: Millrace, topic: str, line: bytes, problem: str
) -> None:
    sent = millrace.process(
        *("produce", topic, "-f", "json-envelope"), stdin=b'{"value": "v"}\n' + line + b"\n"
    )
    assert sent.returncode == Exit.INPUT
    assert f"stdin line 2 {problem}" in sent.stderr.decode()
    assert millrace("consume", topic).stdout == ""


@given(st.binary())
def test_any_bytes_are_a_record_or_refused(line: bytes) -> None:
    try:
        read_envelope(line)
    except ValueError as error:
        assert str(error)
