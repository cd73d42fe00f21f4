"""A raw client for tests: frames and lines straight on a socket, nothing retried or hidden."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from millrace_protocol.api import APIS
from millrace_protocol.codec import decode, encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import (
    HEADER_SIZE,
    ResponseHeader,
    read_response_header,
    request_frame,
)
from millrace_protocol.messages.admin import (
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    PartitionCount,
    TopicConfig,
    TopicResult,
)
from millrace_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigChanges,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
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
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse, TopicMetadata
from millrace_protocol.messages.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.messages.producer_id import InitProducerIdRequest, InitProducerIdResponse
from millrace_protocol.records import Record, decode_fetch, encode_batch
from millrace_protocol.schema import Message
from tests.hang_timeout import HANG_TIMEOUT_S

M = TypeVar("M", bound=Message)
KEYS = {api.request: key for key, api in APIS.items()}
RESPONSES = {api.request: api.response for api in APIS.values()}
Entry = tuple[str, int, bytes]
"""A batch to produce: topic, partition, bytes."""


def batch(*values: bytes | None, timestamp_ms: int = 1_000, **options: int) -> bytes:
    """One sealed batch, as a producer would send it."""
    return bytes(encode_batch(list(values), timestamps_ms=timestamp_ms, **options))  # type: ignore[arg-type]


def sequenced(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytes:
    """A batch of an idempotent producer."""
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def records_of(result: FetchPartitionResult, *, offset: int = 0) -> list[Record]:
    """The records of a fetch from `offset` on."""
    found: list[Record] = []
    for records, _ in decode_fetch(bytes(result.records), from_offset=offset):
        found += records
    return found


def values_of(result: FetchPartitionResult, *, offset: int = 0) -> list[bytes | None]:
    """Their values."""
    return [record[3] for record in records_of(result, offset=offset)]


def reset(writer: asyncio.StreamWriter) -> None:
    """Hangs up with a reset, as a process that is killed with data unread."""
    borrowed = writer.get_extra_info("socket")
    borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Wire:
    """One connection. `client_id` is sent with every request."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client_id: bytes
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._client_id = client_id
        self._sent = 0

    # Bytes

    def send_body(self, api: int, body: bytes, *, version: int = 0) -> int:
        """Sends a request and returns its correlation id."""
        self._sent += 1
        self.writer.write(
            request_frame(
                api=api,
                version=version,
                correlation_id=self._sent,
                client_id=self._client_id,
                body=body,
            )
        )
        return self._sent

    def send(self, request: Message) -> int:
        """The same with a message."""
        return self.send_body(KEYS[type(request)], encode(request, 0))

    async def receive(self) -> tuple[ResponseHeader, bytes]:
        """The next response: its header and body."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            length = await self.reader.readexactly(4)
            frame = length + await self.reader.readexactly(int.from_bytes(length, "big"))
        return read_response_header(frame), frame[HEADER_SIZE:]

    async def answer(self, cls: type[M], *, sent: int | None = None) -> M:
        """The next response, which is not a refusal."""
        header, body = await self.receive()
        assert header.error_code == 0, decode(ErrorResponse, body, 0)
        assert sent is None or header.correlation_id == sent
        return decode(cls, body, 0)

    async def ask(self, request: Message, cls: type[M]) -> M:
        """One request and its answer."""
        return await self.answer(cls, sent=self.send(request))

    async def refusal(self) -> tuple[ErrorCode, ErrorResponse]:
        """The next response, which is a refusal."""
        header, body = await self.receive()
        return ErrorCode(header.error_code), decode(ErrorResponse, body, 0)

    async def refused(self, request: Message) -> tuple[ErrorCode, str]:
        """The code and the sentence with which a whole request is refused."""
        self.send(request)
        code, refusal = await self.refusal()
        return code, refusal.message

    async def closed(self) -> bytes:
        """What still comes until the broker has closed."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    def reset(self) -> None:
        """See `reset`."""
        reset(self.writer)

    # Apis

    async def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        settings = tuple(TopicConfig(k, v) for k, v in (configs or {}).items())
        new = NewTopic(name, partitions, replication_factor, settings)
        response = await self.ask(CreateTopicsRequest((new,), validate_only), CreateTopicsResponse)
        (created,) = response.topics
        return created

    async def delete(self, name: str) -> TopicResult:
        (result,) = (await self.ask(DeleteTopicsRequest((name,)), DeleteTopicsResponse)).topics
        return result

    async def widen(
        self, name: str, partitions: int, *, validate_only: bool = False
    ) -> TopicResult:
        request = CreatePartitionsRequest((PartitionCount(name, partitions),), validate_only)
        (result,) = (await self.ask(request, CreatePartitionsResponse)).topics
        return result

    async def alter(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> TopicResult:
        configs = tuple(TopicConfig(k, v) for k, v in changes.items())
        request = AlterConfigsRequest((ConfigChanges(name, configs),), validate_only)
        (result,) = (await self.ask(request, AlterConfigsResponse)).topics
        return result

    async def configs(self, name: str) -> dict[str, tuple[str, bool]]:
        """Every setting of a topic: its value and whether it is the default."""
        request = DescribeConfigsRequest((name,))
        (topic,) = (await self.ask(request, DescribeConfigsResponse)).topics
        assert topic.error_code == 0, topic.error_message
        return {entry.name: (entry.value, entry.is_default) for entry in topic.configs}

    async def topic(self, name: str) -> TopicMetadata:
        (found,) = (await self.ask(MetadataRequest((name,)), MetadataResponse)).topics
        return found

    async def topics(self) -> list[str]:
        return [t.name for t in (await self.ask(MetadataRequest(None), MetadataResponse)).topics]

    async def produce_all(
        self, entries: Iterable[Entry], *, acks: int = -1, timeout_ms: int = 10_000
    ) -> tuple[ProducePartitionResult, ...]:
        request = ProduceRequest(
            acks, timeout_ms, tuple(ProducePartition(*entry) for entry in entries)
        )
        return (await self.ask(request, ProduceResponse)).partitions

    async def produce(
        self, topic: str, made: bytes, *, partition: int = 0, acks: int = -1
    ) -> ProducePartitionResult:
        (result,) = await self.produce_all([(topic, partition, made)], acks=acks)
        return result

    async def fetch(
        self, topic: str, offset: int, *, partition: int = 0, leader_epoch: int = -1
    ) -> FetchPartitionResult:
        request = fetch_request([(topic, partition, offset)], leader_epoch=leader_epoch)
        (result,) = (await self.ask(request, FetchResponse)).partitions
        return result

    async def offset(self, topic: str, timestamp_ms: int) -> ListOffsetsResult:
        asked = ListOffsetsPartition(topic, 0, timestamp_ms)
        response = await self.ask(ListOffsetsRequest((asked,)), ListOffsetsResponse)
        return response.partitions[0]

    async def producer_id(self, producer_id: int = -1, epoch: int = -1) -> tuple[int, int]:
        request = InitProducerIdRequest(producer_id, epoch)
        given = await self.ask(request, InitProducerIdResponse)
        return given.producer_id, given.producer_epoch


def fetch_request(
    wanted: Sequence[tuple[str, int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    leader_epoch: int = -1,
) -> FetchRequest:
    """A fetch of (topic, partition, offset) entries."""
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        tuple(
            FetchPartition(topic, partition, leader_epoch, offset, partition_bytes)
            for topic, partition, offset in wanted
        ),
    )


@asynccontextmanager
async def connect(
    port: int, *, hello: bool = True, client_id: bytes = b"test"
) -> AsyncIterator[Wire]:
    """A connection that has sent Hello, unless `hello` is false."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wire = Wire(reader, writer, client_id=client_id)
    try:
        if hello:
            await wire.ask(HelloRequest("test", "1"), HelloResponse)
        yield wire
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


class Text:
    """One connection that speaks lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def type(self, *lines: str | bytes) -> None:
        """Sends lines at once, each with a line feed."""
        for line in lines:
            self.writer.write((line.encode() if isinstance(line, str) else line) + b"\n")

    async def line(self) -> str:
        """The next line of an answer; empty at the end."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            return (await self.reader.readline()).decode("utf-8", "surrogateescape").rstrip("\n")

    async def answer(self) -> list[str]:
        """The lines of one answer, to its OK or ERR."""
        lines = [await self.line()]
        while not lines[-1].startswith(("OK", "ERR")):
            assert lines[-1], f"the connection ended after {lines}"
            lines.append(await self.line())
        return lines

    async def ask(self, line: str | bytes) -> list[str]:
        """One line and its answer."""
        self.type(line)
        return await self.answer()

    async def rest(self) -> str:
        """All that comes until the broker closes."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            return (await self.reader.read()).decode("utf-8", "surrogateescape")


@asynccontextmanager
async def connect_text(port: int) -> AsyncIterator[Text]:
    """A connection for lines."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Text(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def until(fact: Callable[[], bool]) -> None:
    """Lets the loop run until something is so."""
    async with asyncio.timeout(HANG_TIMEOUT_S):
        while not fact():  # noqa: ASYNC110 - nothing announces the facts of a socket
            await asyncio.sleep(0)


def open_files() -> list[str]:
    """What this process has open, by name."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return sorted(found)
