"""The example client, written from the specification alone, against the real codec."""

from __future__ import annotations

import importlib.util
import socket
import threading
import uuid
from pathlib import Path
from types import ModuleType

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import decode, encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import (
    FrameSplitter,
    error_frame,
    read_request_header,
    response_frame,
)
from millrace_protocol.messages.admin import CreatedTopic, CreateTopicsResponse
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.fetch import FetchPartitionResult, FetchRequest, FetchResponse
from millrace_protocol.messages.hello import HelloRequest, HelloResponse
from millrace_protocol.messages.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.records import (
    assign,
    check_produced_batch,
    decode_records,
    encode_batch,
)
from millrace_protocol.schema import Message

EXAMPLE = Path(__file__).parents[2] / "examples" / "raw_client.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("raw_client", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RAW = load()


class ScriptedBroker:
    """Answers one connection through the real codec; keeps the requests it was sent."""

    def __init__(self, *, refuse: ApiKey | None = None) -> None:
        self.requests: list[Message] = []
        self._refuse = refuse
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> str:
        self._thread.start()
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        splitter = FrameSplitter()
        with connection:
            connection.settimeout(10)
            while data := connection.recv(65_536):
                for frame in splitter.feed(data):
                    connection.sendall(self._answer(frame))

    def _answer(self, frame: bytes) -> bytes:
        header = read_request_header(frame)
        api = APIS[ApiKey(header.api)]
        request = decode(api.request, frame[header.body_position :], header.version)
        self.requests.append(request)
        if api.key is self._refuse:
            return error_frame(
                api=header.api,
                version=header.version,
                correlation_id=header.correlation_id,
                error_code=ErrorCode.INVALID_REQUEST,
                response=ErrorResponse("not today"),
            )
        return response_frame(
            api=header.api,
            version=header.version,
            correlation_id=header.correlation_id,
            body=encode(self._respond(request), header.version),
        )

    def _respond(self, request: Message) -> Message:
        match request:
            case HelloRequest():
                return HelloResponse("millrace", "0.1.0", "abc", 1, 1 << 24, 64, ())
            case ProduceRequest():
                name = request.partitions[0].topic
                return ProduceResponse((ProducePartitionResult(name, 0, 0, None, 40, -1, 0),))
            case FetchRequest():
                # The batch begins one record before what was asked for.
                batch = bytearray(encode_batch([b"zero", b"one", b"two"], timestamps_ms=1))
                assign(batch, base_offset=39, leader_epoch=0)
                name = request.partitions[0].topic
                return FetchResponse(
                    (FetchPartitionResult(name, 0, 0, None, 42, 0, -1, bytes(batch)),)
                )
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        return CreateTopicsResponse(
            (CreatedTopic("raw-client-demo", exists, "it exists", uuid.UUID(int=0), -1, -1),)
        )


def test_the_example_speaks_with_the_real_codec(capsys: pytest.CaptureFixture[str]) -> None:
    broker = ScriptedBroker()
    with broker as address:
        RAW.main(address)
    assert capsys.readouterr().out.splitlines() == [
        "connected to millrace 0.1.0",
        "produced 3 records from offset 40",
        "40 one",
        "41 two",
    ]
    _, _, produced, fetched = broker.requests
    assert isinstance(produced, ProduceRequest) and isinstance(fetched, FetchRequest)
    batch = produced.partitions[0].records
    assert check_produced_batch(batch, max_bytes=1000).record_count == 3
    assert [value for _, _, _, value, _ in decode_records(batch)] == [b"one", b"two", b"three"]
    assert fetched.partitions[0].fetch_offset == 40


def test_the_example_prints_the_sentence_of_a_refusal() -> None:
    """W-2.4"""
    broker = ScriptedBroker(refuse=ApiKey.PRODUCE)
    with broker as address, pytest.raises(SystemExit, match="refused, error 42: not today"):
        RAW.main(address)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=200), st.integers(0, 2**45))
def test_the_examples_batches_keep_every_rule_of_a_produced_batch(
    values: list[bytes], timestamp_ms: int
) -> None:
    """W-5.6"""
    batch = RAW.record_batch(values, timestamp_ms)
    check_produced_batch(batch, max_bytes=len(batch))
    assert [record[3] for record in decode_records(batch)] == values
    assert RAW.records(RAW.Reader(batch), 0) == list(enumerate(values))


@given(st.binary(max_size=300))
def test_the_examples_crc_is_crc32c(data: bytes) -> None:
    """W-5.1"""
    assert RAW.crc32c(data) == crc32c.crc32c(data)
    assert RAW.crc32c(b"123456789") == 0xE3069283


@given(st.integers(-(2**63), 2**63 - 1))
def test_the_examples_varints_come_back(number: int) -> None:
    """W-5.3.1"""
    assert RAW.Reader(RAW.varint(number)).varint() == number
    assert len(RAW.varint(number)) <= 10
