"""How one broker calls another: through `Net.connect`, with the request side of `millrace_wire`."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from millrace_protocol.messages.admin import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_protocol.records import check_batches, decode_records, encode_batch
from millrace_server.environment.seams import Environment
from millrace_wire.connection import Address, Connection, ConnectionConfig, connect

TOPIC = "copied"
TIMEOUT_MS = 60_000
PIPELINED = 16
CONFIG = ConnectionConfig(
    software="millrace-broker",
    software_version="1",
    client_id="broker-1",
    connect_timeout_ms=TIMEOUT_MS,
    receive_bytes_max=17 << 20,
)


async def call_broker(
    env: Environment, address: Address, config: ConnectionConfig = CONFIG
) -> Connection:
    """A connection from the broker of `env` to the broker at `address`."""
    return await connect(env.net.connect, address, config)


async def metadata(connection: Connection, timeout_ms: int = TIMEOUT_MS) -> MetadataResponse:
    """What the other broker knows of the topic."""
    request = MetadataRequest((TOPIC,))
    return await connection.call(request, MetadataResponse, timeout_ms=timeout_ms)


async def create_topic(connection: Connection) -> None:
    """Creates the topic on the other broker, with one partition."""
    request = CreateTopicsRequest((NewTopic(TOPIC, 1, -1, ()),), False)
    created = await connection.call(request, CreateTopicsResponse, timeout_ms=TIMEOUT_MS)
    assert created.topics[0].error_code == 0, created.topics[0].error_message


async def append(connection: Connection, value: bytes) -> int:
    """Appends one record; returns its offset."""
    batch = memoryview(encode_batch([value], timestamps_ms=1_700_000_000_000))
    request = ProduceRequest(-1, TIMEOUT_MS, (ProducePartition(TOPIC, 0, batch),))
    response = await connection.call(request, ProduceResponse, timeout_ms=TIMEOUT_MS)
    assert response.partitions[0].error_code == 0, response.partitions[0].error_message
    return response.partitions[0].base_offset


async def append_pipelined(connection: Connection) -> list[int]:
    """`PIPELINED` appends that do not wait for each other; their offsets."""
    values = [b"%d" % number for number in range(PIPELINED)]
    return await asyncio.gather(*(append(connection, value) for value in values))


async def read(
    connection: Connection, offset: int, *, max_wait_ms: int = 0, timeout_ms: int = TIMEOUT_MS
) -> list[bytes]:
    """The values from `offset` on, as a follower reads them."""
    request = FetchRequest(
        max_wait_ms, 1, 1 << 20, (FetchPartition(TOPIC, 0, -1, offset, 1 << 20),)
    )
    response = await connection.call(request, FetchResponse, timeout_ms=timeout_ms)
    assert response.partitions[0].error_code == 0, response.partitions[0].error_message
    data = bytes(response.partitions[0].records)
    starts, corrupt = check_batches(data)
    assert corrupt is None
    records = [
        record
        for start, end in pairwise([*starts, len(data)])
        for record in decode_records(data[start:end])
    ]
    return [record[3] for record in records if record[3] is not None]
