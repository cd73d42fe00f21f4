"""Rules of wire_spec.md, checked on a real broker with raw bytes."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from millrace_protocol.api import APIS, ApiKey, Listener, apis_of
from millrace_protocol.codec import decode, encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import (
    HEADER_SIZE,
    ResponseHeader,
    read_response_header,
    request_frame,
)
from millrace_protocol.messages.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    NewTopic,
    TopicConfig,
)
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
)
from millrace_protocol.messages.hello import HelloRequest, HelloResponse
from millrace_protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.messages.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.messages.producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millrace_protocol.records import decode_fetch, encode_batch, read_header, seal
from millrace_protocol.schema import Message
from millrace_server.testing import Broker
from tests.hang_timeout import HANG_TIMEOUT_S

M = TypeVar("M", bound=Message)
RAW_CLIENT = Path(__file__).parents[2] / "examples" / "raw_client.py"
KEYS = {api.request: key for key, api in APIS.items()}


class Wire:
    """One connection, a frame at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._sent = 0

    @classmethod
    @asynccontextmanager
    async def connect(cls, broker: Broker) -> AsyncIterator[Wire]:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def send(self, request: Message) -> int:
        """Sends a request and returns its correlation id."""
        return self.send_body(KEYS[type(request)], encode(request, 0))

    def send_body(self, api: int, body: bytes, *, version: int = 0) -> int:
        self._sent += 1
        self.writer.write(
            request_frame(
                api=api, version=version, correlation_id=self._sent, client_id=b"w", body=body
            )
        )
        return self._sent

    async def receive(self) -> tuple[ResponseHeader, bytes]:
        """The next response frame's header and body."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            length = await self.reader.readexactly(4)
            frame = length + await self.reader.readexactly(int.from_bytes(length, "big"))
        return read_response_header(frame), frame[HEADER_SIZE:]

    async def ask(self, request: Message, answer: type[M]) -> M:
        sent = self.send(request)
        header, body = await self.receive()
        assert (header.correlation_id, header.error_code) == (sent, 0)
        return decode(answer, body, 0)

    async def refusal(self) -> tuple[ErrorCode, ErrorResponse]:
        header, body = await self.receive()
        return ErrorCode(header.error_code), decode(ErrorResponse, body, 0)

    async def create(self, name: str, *, partitions: int = 1, **configs: str) -> ErrorCode:
        settings = tuple(TopicConfig(k.replace("_", "."), v) for k, v in configs.items())
        request = CreateTopicsRequest((NewTopic(name, partitions, -1, settings),), False)
        return ErrorCode((await self.ask(request, CreateTopicsResponse)).topics[0].error_code)

    async def produce(self, *batches: bytes | bytearray, acks: int = -1) -> ProducePartitionResult:
        """Produces to partition 0, 1, ... of `clicks`; the last result."""
        response = await self.ask(produce_request(*batches, acks=acks), ProduceResponse)
        return response.partitions[-1]

    async def fetch(self, offset: int, *, max_bytes: int = 1 << 20) -> FetchPartitionResult:
        request = fetch_request(offset, max_bytes=max_bytes)
        return (await self.ask(request, FetchResponse)).partitions[0]

    async def closed(self) -> bytes:
        """What still comes until the broker has closed."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


def produce_request(*batches: bytes | bytearray, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks,
        10_000,
        tuple(ProducePartition("clicks", n, bytes(batch)) for n, batch in enumerate(batches)),
    )


def fetch_request(
    offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0, partitions: int = 1
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms,
        1,
        max_bytes,
        tuple(FetchPartition("clicks", n, -1, offset, 1 << 20) for n in range(partitions)),
    )


def batch(*values: bytes, timestamp_ms: int = 1_000) -> bytes:
    return bytes(encode_batch(list(values), timestamps_ms=timestamp_ms))


def sequenced(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytes:
    made = bytearray(encode_batch(list(values), timestamps_ms=1_000))
    header = read_header(made)
    header.producer_id, header.producer_epoch, header.base_sequence = producer_id, epoch, sequence
    made[:61] = header.pack()
    seal(made)
    return bytes(made)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        yield running


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    async with Wire.connect(broker) as connection:
        await connection.ask(HelloRequest("wire-rules", "1"), HelloResponse)
        yield connection


async def test_hello_names_every_api_with_its_versions(wire: Wire) -> None:
    """W-4.1"""
    hello = await wire.ask(HelloRequest("x", "1"), HelloResponse)
    spoken = {entry.api: (entry.min_version, entry.max_version) for entry in hello.apis}
    served = apis_of(Listener.CLIENT)
    assert spoken == {int(k): (a.min_version, a.max_version) for k, a in served.items()}
    assert hello.frame_bytes_max == 16 << 20


async def test_answers_leave_in_the_order_of_the_requests(wire: Wire) -> None:
    """W-2.6"""
    await wire.create("clicks")
    sent = [wire.send(fetch_request(0, max_wait_ms=200))]
    sent += [wire.send(MetadataRequest(())) for _ in range(5)]
    sent.append(wire.send_body(999, b""))
    assert [(await wire.receive())[0].correlation_id for _ in sent] == sent


async def test_a_refused_request_changes_nothing_for_its_neighbours(wire: Wire) -> None:
    """W-2.4, W-6.6, W-6.6.1"""
    await wire.create("clicks")
    first = wire.send(produce_request(batch(b"a")))
    wire.send_body(999, b"?")
    wire.send_body(ApiKey.FETCH, b"", version=9)
    wire.send_body(ApiKey.PRODUCE, b"\xff\xff\0\0")
    last = wire.send(produce_request(batch(b"b")))

    header, body = await wire.receive()
    assert header.correlation_id == first
    assert decode(ProduceResponse, body, 0).partitions[0].base_offset == 0
    assert (await wire.refusal())[0] is ErrorCode.UNKNOWN_API
    code, refusal = await wire.refusal()
    assert refusal.message == "The broker has Fetch in versions 0 to 0, not in 9"
    assert (code, refusal.min_version, refusal.max_version) == (
        ErrorCode.UNSUPPORTED_VERSION,
        APIS[ApiKey.FETCH].min_version,
        APIS[ApiKey.FETCH].max_version,
    )
    code, refusal = await wire.refusal()
    assert code is ErrorCode.INVALID_REQUEST
    # The frame's header and client id take 17 bytes, acks 2; timeout_ms is cut short.
    assert "at byte 19" in refusal.message
    header, body = await wire.receive()
    assert header.correlation_id == last
    assert decode(ProduceResponse, body, 0).partitions[0].base_offset == 1


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\x0cXX" + bytes(10),
        b"\0\0\0\x0cMR\x80\x12" + bytes(8),
        b"\0\0\0\x0cMR\0\x12" + bytes(6) + b"\xff\xfe",
    ],
    ids=["magic", "response", "client id"],
)
async def test_bytes_that_are_no_request_close_the_connection(wire: Wire, frame: bytes) -> None:
    """W-2.1, W-2.2, W-6.6"""
    wire.writer.write(frame)
    assert await wire.closed() == b""


@pytest.mark.parametrize("length", [3, (16 << 20) + 1])
async def test_a_frame_length_out_of_bounds_is_refused_and_closes(wire: Wire, length: int) -> None:
    """W-6.2"""
    wire.writer.write(length.to_bytes(4, "big"))
    assert (await wire.refusal())[0] is ErrorCode.FRAME_TOO_LARGE
    assert await wire.closed() == b""


async def test_before_hello_a_large_frame_is_refused(broker: Broker) -> None:
    """W-6.1"""
    async with Wire.connect(broker) as wire:
        wire.writer.write((65_537).to_bytes(4, "big"))
        assert (await wire.refusal())[0] is ErrorCode.FRAME_TOO_LARGE
        assert await wire.closed() == b""


async def test_a_request_names_at_most_two_thousand_entries(wire: Wire) -> None:
    """W-6.4"""
    wire.send(fetch_request(0, partitions=2_001))
    assert (await wire.refusal())[0] is ErrorCode.INVALID_REQUEST
    response = await wire.ask(fetch_request(0, partitions=2_000), FetchResponse)
    assert len(response.partitions) == 2_000


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "caf\xe9", "x" * 250])
async def test_names_that_are_none_are_refused(wire: Wire, name: str) -> None:
    """W-6.5"""
    assert await wire.create(name) is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_name_may_have_249_characters(wire: Wire) -> None:
    """W-6.5"""
    assert await wire.create("aZ09._-" + "x" * 242) is ErrorCode.NONE


async def test_one_batch_may_be_refused_and_the_others_appended(wire: Wire) -> None:
    """W-4.3.1, W-5.6"""
    await wire.create("clicks", partitions=3)
    broken = bytearray(batch(b"b"))
    broken[-1] ^= 1
    request = produce_request(batch(b"a"), broken, batch(b"c") + batch(b"d"))
    response = await wire.ask(request, ProduceResponse)
    assert [r.error_code for r in response.partitions] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
    ]
    assert [r.base_offset for r in response.partitions] == [0, -1, -1]


async def test_acks_0_has_no_answer_and_a_refused_batch_closes(wire: Wire) -> None:
    """W-4.3.2"""
    await wire.create("clicks")
    wire.send(produce_request(batch(b"a"), acks=0))
    asked = wire.send(MetadataRequest(()))
    assert (await wire.receive())[0].correlation_id == asked
    assert (await wire.produce(batch(b"b"))).base_offset == 1
    wire.send(produce_request(b"no batch", acks=0))
    assert await wire.closed() == b""


async def test_other_acks_are_refused(wire: Wire) -> None:
    """W-4.3.2"""
    wire.send(produce_request(batch(b"a"), acks=2))
    assert (await wire.refusal())[0] is ErrorCode.INVALID_REQUIRED_ACKS


async def test_a_repeated_batch_is_appended_once_and_a_gap_is_refused(wire: Wire) -> None:
    """W-4.3.4"""
    await wire.create("clicks")
    given = await wire.ask(InitProducerIdRequest(-1, -1), InitProducerIdResponse)
    producer, epoch = given.producer_id, given.producer_epoch
    batches = [sequenced(producer, epoch, 2 * n, b"a", b"b") for n in range(6)]
    results = [await wire.produce(made) for made in batches]
    assert [r.base_offset for r in results] == [0, 2, 4, 6, 8, 10]

    again = [await wire.produce(made) for made in batches[1:]]
    assert [(r.error_code, r.base_offset) for r in again] == [(0, o) for o in (2, 4, 6, 8, 10)]
    forgotten = await wire.produce(batches[0])
    gap = await wire.produce(sequenced(producer, epoch, 13, b"x"))
    assert {forgotten.error_code, gap.error_code} == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    unknown = await wire.produce(sequenced(producer + 1, 0, 5, b"x"))
    assert unknown.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert (await wire.fetch(0)).high_watermark == 12


async def test_a_new_epoch_begins_at_sequence_0_and_fences_the_old_one(wire: Wire) -> None:
    """W-4.3.4, W-4.6"""
    await wire.create("clicks")
    old = await wire.ask(InitProducerIdRequest(-1, -1), InitProducerIdResponse)
    await wire.produce(sequenced(old.producer_id, old.producer_epoch, 0, b"a"))
    new = await wire.ask(
        InitProducerIdRequest(old.producer_id, old.producer_epoch), InitProducerIdResponse
    )
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, old.producer_epoch + 1)
    early = await wire.produce(sequenced(new.producer_id, new.producer_epoch, 1, b"b"))
    assert early.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begun = await wire.produce(sequenced(new.producer_id, new.producer_epoch, 0, b"b"))
    assert (begun.error_code, begun.base_offset) == (0, 1)
    fenced = await wire.produce(sequenced(old.producer_id, old.producer_epoch, 1, b"c"))
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_an_id_that_was_never_given_gets_a_new_one(wire: Wire) -> None:
    """W-4.6"""
    first = await wire.ask(InitProducerIdRequest(-1, -1), InitProducerIdResponse)
    other = await wire.ask(InitProducerIdRequest(10**15, 3), InitProducerIdResponse)
    assert other.producer_id not in (first.producer_id, 10**15)
    assert other.producer_epoch == 0


async def test_the_first_batch_comes_whole_even_when_it_is_too_large(wire: Wire) -> None:
    """W-4.4.1, W-4.4.2"""
    await wire.create("clicks")
    for value in (b"a" * 1_000, b"b" * 1_000):
        await wire.produce(batch(value, value))
    result = await wire.fetch(1, max_bytes=10)
    (chunk,) = decode_fetch(bytes(result.records))
    records, next_offset = chunk
    assert [record[0] for record in records] == [0, 1]
    assert next_offset == 2
    assert len((await wire.fetch(0)).records) == 2 * len(result.records)


async def test_when_the_bytes_are_used_up_later_partitions_are_empty(wire: Wire) -> None:
    """W-4.4.2"""
    await wire.create("clicks", partitions=2)
    await wire.produce(batch(b"a"), batch(b"b"))
    response = await wire.ask(fetch_request(0, max_bytes=10, partitions=2), FetchResponse)
    first, second = response.partitions
    assert len(first.records) > 10
    assert (len(second.records), second.error_code, second.high_watermark) == (0, 0, 1)


async def test_an_offset_outside_is_refused_with_the_range(wire: Wire) -> None:
    """W-4.4.5"""
    await wire.create("clicks")
    await wire.produce(batch(b"a", b"b"))
    outside = await wire.fetch(3)
    assert outside.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (outside.log_start_offset, outside.high_watermark) == (0, 2)
    end = await wire.fetch(2)
    assert (end.error_code, len(end.records)) == (0, 0)


async def test_a_long_poll_is_answered_when_data_arrives(broker: Broker, wire: Wire) -> None:
    """W-4.4.4"""
    await wire.create("clicks")
    sent = wire.send(fetch_request(0, max_wait_ms=60_000))
    async with Wire.connect(broker) as other:
        await other.produce(batch(b"a"))
    header, body = await wire.receive()
    assert header.correlation_id == sent
    assert len(decode(FetchResponse, body, 0).partitions[0].records) > 61


async def test_offsets_are_listed_by_name_and_by_time(wire: Wire) -> None:
    """W-4.5.1"""
    await wire.create("clicks")
    for timestamp_ms in (1_000, 3_000, 2_000):
        await wire.produce(batch(b"a", b"b", timestamp_ms=timestamp_ms))
    asked = (LATEST, EARLIEST, MAX_TIMESTAMP, 0, 1_001, 3_001, -4)
    request = ListOffsetsRequest(tuple(ListOffsetsPartition("clicks", 0, t) for t in asked))
    response = await wire.ask(request, ListOffsetsResponse)
    assert [(r.offset, r.timestamp_ms) for r in response.partitions[:-1]] == [
        (6, -1),
        (0, -1),
        (2, 3_000),
        (0, 1_000),
        (2, 3_000),
        (-1, -1),
    ]
    assert response.partitions[-1].error_code == ErrorCode.INVALID_REQUEST


async def test_the_broker_stamps_records_where_the_topic_says_so(wire: Wire) -> None:
    """W-5.5"""
    await wire.create("clicks", message_timestamp_type="LogAppendTime")
    produced = await wire.produce(batch(b"a", timestamp_ms=5))
    assert produced.log_append_time_ms > 5
    ((records, _),) = decode_fetch(bytes((await wire.fetch(0)).records))
    assert records[0][1] == produced.log_append_time_ms


async def test_the_example_client_works(broker: Broker) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(RAW_CLIENT), broker.servers, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(HANG_TIMEOUT_S):
        printed, _ = await process.communicate()
    assert process.returncode == 0
    assert printed.decode().splitlines()[1:] == [
        "produced 3 records from offset 0",
        "0 one",
        "1 two",
        "2 three",
    ]


async def test_an_answer_in_text_ends_with_ok_or_err(broker: Broker) -> None:
    """W-8.1, W-8.2"""
    typed = "CREATE t\r\nproduce t 0 OK \x1b[2J\\\nFETCH t 0 0\n\nFETCH nope 0 0\nQUIT\n"
    async with Wire.connect(broker) as wire:
        wire.writer.write(typed.encode())
        lines = (await wire.closed()).decode().splitlines()
    created, produced, record, fetched, refused, bye = lines
    assert created == "OK topic t with 1 partition"
    assert produced == "OK t-0 offset 0"
    assert re.fullmatch(r"offset 0 time \S+Z key \(null\) value OK \\x1b\[2J\\\\", record)
    assert fetched.startswith("OK 1 record")
    assert refused.startswith("ERR UNKNOWN_TOPIC_OR_PARTITION ")
    assert bye == "OK bye"


async def test_metadata_names_the_leader_and_missing_topics(wire: Wire) -> None:
    """W-4.2"""
    await wire.create("clicks", partitions=2)
    response = await wire.ask(MetadataRequest(("clicks", "nope")), MetadataResponse)
    clicks, nope = response.topics
    (node,) = response.brokers
    assert [p.leader_id for p in clicks.partitions] == [node.node_id] * 2
    assert nope.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
