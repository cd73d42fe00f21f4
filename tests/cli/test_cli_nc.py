"""`millrace nc`: typed requests, and the bytes of both directions."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit
from millrace_cli.formats.exchange import ExchangeError, Transfer, read_exchange, write_exchange
from millrace_cli.formats.request_line import RequestError, api_help, read_request
from millrace_protocol.api import APIS
from millrace_protocol.dissect import dissect_frames
from millrace_protocol.messages.admin import CreateTopicsRequest, NewTopic, TopicConfig
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest
from millrace_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_protocol.messages.produce import ProduceRequest
from millrace_protocol.records import decode_records
from millrace_protocol.schema import Message, wire_fields

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

FETCH_T = FetchPartition("t", 0, -1, 0, 1 << 20)


def typed(millrace: Millrace, *lines: str, flags: tuple[str, ...] = ()) -> tuple[int, str, str]:
    ended = millrace.process("nc", *flags, stdin="\n".join([*lines, ""]).encode())
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def titles(output: str) -> list[str]:
    """What passed, without the bytes."""
    lines = output.splitlines()
    return [
        after.partition(":")[0]
        for line, after in pairwise(lines)
        if line.startswith(("-->", "<--"))
    ]


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("metadata", MetadataRequest(None)),
        ("METADATA topics=[]", MetadataRequest(())),
        ('Metadata topics=["a", "b"]', MetadataRequest(("a", "b"))),
        ("metadata topics=7", MetadataRequest(("7",))),
        ("fetch partitions=t", FetchRequest(0, 0, 1 << 20, (FETCH_T,))),
        (
            'fetch max_wait_ms = 5 min_bytes=1 partitions=[{"topic": "t"}, "t"] max_bytes=9',
            FetchRequest(5, 1, 9, (FETCH_T, FETCH_T)),
        ),
        (
            'list-offsets partitions={"topic":"t","timestamp_ms":-2,"partition":3}',
            ListOffsetsRequest((ListOffsetsPartition("t", 3, -2),)),
        ),
        (
            'create_topics topics={"name":"t","configs":{"name":"a","value":"b"}}',
            CreateTopicsRequest((NewTopic("t", -1, -1, (TopicConfig("a", "b"),)),), False),
        ),
    ],
)
def test_omitted_fields_of_a_request_have_defaults(line: str, request_: Message) -> None:
    assert read_request(line, now_ms=0)[2] == request_


def test_records_are_typed_as_values_objects_or_hex() -> None:
    line = 'produce partitions={"topic":"t","records":["a",{"key":"k","value":null},{"value":[1]}]}'
    request = read_request(line, now_ms=77)[2]
    assert isinstance(request, ProduceRequest)
    records = bytes(request.partitions[0].records)
    assert decode_records(records) == [
        (0, 77, None, b"a", ()),
        (1, 77, b"k", None, ()),
        (2, 77, None, b"[1]", ()),
    ]
    again = read_request(
        f'produce partitions={{"topic":"t","records":"{records.hex()}"}}', now_ms=0
    )[2]
    assert again == request


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("metdata", "did you mean metadata?"),
        ("fetch@x partitions=t", "'x' is not a version"),
        ("fetch partition=t", "partition: unknown field; FetchRequest has max_wait_ms"),
        ("fetch", "partitions: is missing"),
        ("fetch partitions=[{}]", "partitions[0].topic: is missing; it takes string"),
        ('fetch partitions={"topic":"t","partition":"x"}', "partitions[0].partition: 'x'"),
        ("fetch partitions=[", "partitions: "),
        ("fetch partitions", "expected field=value"),
        ("fetch partitions=", "partitions: a value is missing"),
        ("create_topics topics=t validate_only=1", "neither true nor false"),
        ('produce partitions={"topic":"t","records":"zz"}', "partitions[0].records: "),
        ('produce partitions={"topic":"t","records":[{"valeu":1}]}', "a record has no valeu"),
    ],
)
def test_a_mistake_in_a_request_names_the_field(line: str, sentence: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_request(line, now_ms=0)
    assert sentence in str(caught.value)


def test_help_names_every_field_of_every_api() -> None:
    for api in APIS.values():
        text = "\n".join(api_help(api))
        for cls in (api.request, api.response):
            for name, _ in wire_fields(cls, api.max_version):
                assert f" {name}: " in text


def test_a_session_from_a_pipe_shows_every_frame(millrace: Millrace, topic: str) -> None:
    code, output, stderr = typed(
        millrace,
        "# comments and empty lines are skipped",
        "",
        f"metadata topics={topic}",
        f'produce partitions={{"topic":"{topic}","records":["hello"]}}',
        f'produce acks=0 partitions={{"topic":"{topic}","records":["unanswered"]}}',
        f"fetch partitions={topic}",
        "quit",
        "metadata never-sent",
    )
    assert (code, stderr) == (0, "")
    assert titles(output) == [
        *("Hello request v0 #0", "Hello response v0 #0"),
        *("Metadata request v0 #1", "Metadata response v0 #1"),
        *("Produce request v0 #2", "Produce response v0 #2"),
        "Produce request v0 #3",
        *("Fetch request v0 #4", "Fetch response v0 #4"),
    ]
    assert f"topics[0].name = '{topic}'" in output
    assert ".value = 'hello'" in output.partition("Fetch response")[2]


def test_an_unknown_version_is_sent_and_the_refusal_is_shown(millrace: Millrace) -> None:
    code, output, _ = typed(millrace, "fetch@9 partitions=t", "metadata topics=[]")
    assert code == 0
    assert "Fetch response v9 #1 UNSUPPORTED_VERSION" in output
    assert titles(output)[-1] == "Metadata response v0 #2"


def test_raw_hex_may_come_in_pieces_and_speak_the_text_dialect(millrace: Millrace) -> None:
    line = b"TOPICS\n".hex()
    code, output, _ = typed(millrace, f"raw {line[:6]}", f"raw {line[6:]}", flags=("--no-hello",))
    assert code == 0
    assert "OK" in output.partition("<--")[2]
    hello = "0000 0014 4d52 0012 0000 0000 0009 0000 0001 61 0003 312e 30"
    code, output, _ = typed(millrace, f"raw {hello[:20]}", f"raw {hello[20:]}")
    assert titles(output)[-1] == "Hello response v0 #9"
    assert "the frame is not complete" in output
    assert code == 0


def test_a_saved_exchange_is_replayed_and_dissected(
    millrace: Millrace, topic: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "exchange")
    produce = f'{{"topic":"{topic}","records":["x"]}}'
    code, output, stderr = typed(
        millrace,
        f"metadata topics={topic}",
        f"produce partitions={produce} acks=0",
        "list_offsets partitions=[]",
        f"save {file}",
        f"replay {file}",
    )
    assert (code, stderr) == (0, "")
    assert f"saved 7 frames to {file}" in output
    assert output.endswith("replayed: 3 of 3 responses are the same, 3 came\n")
    # The replay sent the same bytes again, on a connection of its own.
    assert titles(output)[:7] == titles(output)[7:]
    shown = millrace("dissect", file)
    assert shown.exit_code == 0
    assert [line.partition(":")[0] for line in shown.stdout.splitlines() if line[0].isalpha()] == (
        titles(output)[:7]
    )


def test_a_line_that_is_not_understood_ends_a_pipe_with_exit_65(millrace: Millrace) -> None:
    code, output, stderr = typed(millrace, "frobnicate", "metadata")
    assert code == Exit.INPUT
    assert stderr == "millrace: there is no api 'frobnicate'; type help\n"
    assert titles(output) == ["Hello request v0 #0", "Hello response v0 #0"]
    for line in ("raw xyz", "replay /no/such/file", "save /no/such/dir/file", "help nothing"):
        assert typed(millrace, line)[0] == Exit.INPUT


@contextmanager
def impostor(answer: bytes) -> Iterator[str]:
    """Answers the first bytes of a connection with `answer`, and closes."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_an_answer_that_is_no_frame_is_shown_up_to_the_byte(millrace: Millrace) -> None:
    with impostor(b"\0\0\0\x20HTTP/1.1 400 Bad Request") as server:
        ended = millrace.process("nc", server)
    assert ended.returncode == Exit.UNAVAILABLE
    assert b"<-- magic is b'HT', b'MR' needed: this is no frame" in ended.stdout
    assert ended.stderr == b"millrace: the broker closed the connection\n"


def test_a_broker_that_closes_is_one_line_and_exit_69(millrace: Millrace) -> None:
    with impostor(b"") as server:
        ended = millrace.process("nc", server)
    assert ended.returncode == Exit.UNAVAILABLE
    assert ended.stderr == b"millrace: the broker closed the connection\n"


def test_an_answer_that_never_comes_is_given_up(millrace: Millrace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"127.0.0.1:{listener.getsockname()[1]}"
        ended = millrace.process("nc", server, "--timeout-ms", "50")
    assert ended.returncode == Exit.UNAVAILABLE
    assert ended.stderr == b"millrace: no response in time\n"


def test_exchange_file_is_read_as_it_was_written_and_edits_are_checked() -> None:
    passed = [Transfer(">", bytes(range(40)), "a remark"), Transfer("<", b"\xff")]
    text = "\n".join(write_exchange(passed))
    assert [(p.direction, p.data) for p in read_exchange(text)] == [
        (p.direction, p.data) for p in passed
    ]
    for line, reason in (("? 00", "line 2: does not begin with"), ("> 0", "line 2: is not hex")):
        with pytest.raises(ExchangeError, match=reason):
            read_exchange(f"# x\n{line}")


def test_saved_frames_are_whole(millrace: Millrace, tmp_path: Path) -> None:
    file = tmp_path / "exchange"
    assert typed(millrace, "metadata", f"save {file}")[0] == 0
    for passed in read_exchange(file.read_text()):
        (span,) = dissect_frames(passed.data)
        assert not list(span.faults())
