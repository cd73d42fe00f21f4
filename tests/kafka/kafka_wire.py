"""A connection that speaks Kafka's protocol in any version, message by message."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from millrace_protocol.codec import decode, decode_leading, encode
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi, KafkaApiKey
from millrace_protocol.kafka.headers import RequestHeader, ResponseHeader
from millrace_protocol.kafka.metadata import NO_ID, MetadataRequest, MetadataRequestTopic
from millrace_protocol.kafka.produce import ProducePartition, ProduceRequest, ProduceTopic
from millrace_protocol.schema import Message
from tests.hang_timeout import HANG_TIMEOUT_S

CLIENT_ID = "test"
_BY_REQUEST: dict[type[Message], KafkaApi] = {api.request: api for api in KAFKA_APIS.values()}


class KafkaWire:
    """Sends requests and reads responses, in the order of the calls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    async def call(self, request: Message, version: int, *, more: bytes = b"") -> Any:
        """The response; `more` goes behind the request."""
        await self.send(request, version, more=more)
        return await self.response(_BY_REQUEST[type(request)], version)

    async def send(self, request: Message, version: int, *, more: bytes = b"") -> None:
        """Sends a request and does not wait for the response."""
        api = _BY_REQUEST[type(request)]
        await self.send_raw(api.key, version, encode(request, version) + more)

    async def send_raw(self, key: int, version: int, body: bytes) -> None:
        """Sends a body that may be anything."""
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, CLIENT_ID)
        api = KAFKA_APIS.get(key)
        is_flexible = api is not None and api.is_flexible(version)
        frame = encode(header, 2 if is_flexible else 1) + body
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        await self._writer.drain()

    async def response(self, api: KafkaApi, version: int) -> Any:
        """The next response, to a request of this api and version."""
        frame = await self.some_response()
        has_tags = api.is_flexible(version) and api.key != KafkaApiKey.API_VERSIONS
        header, position = decode_leading(ResponseHeader, frame, 1 if has_tags else 0)
        assert header.correlation_id == self._correlation_id
        return decode(api.response, frame[position:], version)

    def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Sends bytes that need not be a frame."""
        self._writer.write(data)
        if is_last:
            self._writer.write_eof()

    async def some_response(self) -> bytes:
        """The next frame, whatever it answers."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)

    @property
    def has_ended(self) -> bool:
        """Whether the broker has closed the connection."""
        return self._reader.at_eof()

    def stop_reading(self) -> None:
        """Leaves responses in the buffers of the system."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def until_closed(self) -> bytes:
        """What the broker still sends until it closes the connection."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            try:
                return await self._reader.read(-1)
            except ConnectionError:
                return b""


@asynccontextmanager
async def connect_kafka(
    port: int, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[KafkaWire]:
    """A connection to a broker on this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        yield KafkaWire(reader, writer)
    finally:
        writer.close()


def produce(
    records: bytes, *, topic: str = "t", acks: int = -1, partition: int = 0
) -> ProduceRequest:
    """A request that appends record batches to a partition."""
    parts = (ProducePartition(partition, records),)
    return ProduceRequest(None, acks, 30_000, (ProduceTopic(topic, NO_ID, parts),))


async def topic_id(wire: KafkaWire, name: str = "t") -> uuid.UUID:
    """The id of a topic."""
    answer = await wire.call(MetadataRequest((MetadataRequestTopic(NO_ID, name),)), 12)
    found = answer.topics[0].topic_id
    assert isinstance(found, uuid.UUID)
    return found
