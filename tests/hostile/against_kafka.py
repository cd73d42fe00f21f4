"""Attacks in Kafka's protocol: the same as in the native one, as far as they differ on the wire.

Where the native dialect refuses, Kafka's closes the connection: it has no error without a response.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from millrace_protocol.codec import encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import FRAME_BYTES_MAX, FRAME_BYTES_MAX_BEFORE_HELLO
from millrace_protocol.kafka import configs, incremental_configs, topics
from millrace_protocol.kafka import group_membership as membership
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi, KafkaApiKey
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.find_coordinator import FindCoordinatorRequest
from millrace_protocol.kafka.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millrace_protocol.kafka.metadata import NO_ID, MetadataRequest, MetadataRequestTopic
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.records import Codec
from millrace_protocol.schema import Message
from millrace_server.dialects.kafka.fetch_sessions import SESSIONS_MAX
from tests.broker.wire import batch, reset
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.hostile.attack import hostile, hostile_by_waiting
from tests.hostile.forgery import LYING_PAYLOADS, bombs, forged, sealed_payload
from tests.hostile.target import LARGE, PARTITIONS, TOPIC, Target
from tests.kafka.kafka_wire import KafkaWire, connect_kafka, produce

INT32_MAX = 2**31 - 1
_numbers = itertools.count()


def _frame(key: int, version: int, body: bytes, *, client_id: bytes = b"\0\0") -> bytes:
    api = KAFKA_APIS.get(key)
    is_flexible = api is not None and api.is_flexible(version)
    made = struct.pack(">hhi", key, version, 1) + client_id + b"\0" * is_flexible + body
    return struct.pack(">i", len(made)) + made


WHOLE = _frame(KafkaApiKey.METADATA, 1, encode(MetadataRequest(()), 1))


async def _lives(wire: KafkaWire) -> None:
    """The connection is still answered."""
    answer = await wire.call(MetadataRequest((MetadataRequestTopic(NO_ID, TOPIC),)), 12)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def _ends(target: Target, *frames: bytes) -> None:
    """A connection that sends these frames is closed without a word."""
    async with connect_kafka(target.port) as wire:
        await _lives(wire)
        for frame in frames:
            wire.write(frame)
        assert await wire.until_closed() == b""


async def _is_answered_or_closed(target: Target, api: KafkaApi, version: int, body: bytes) -> None:
    """Whatever the body is, the broker says something or hangs up."""
    async with connect_kafka(target.port) as wire:
        wire.write(_frame(api.key, version, body) + WHOLE)
        async with asyncio.timeout(HANG_TIMEOUT_S):
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await wire.some_response()


# Frames


@hostile
async def kafka_lengths_that_are_none(target: Target) -> str:
    for length in (-1, -(2**31), 0, 5, INT32_MAX, FRAME_BYTES_MAX + 1):
        await _ends(target, struct.pack(">i", length))
    first = FRAME_BYTES_MAX_BEFORE_HELLO + 1
    async with connect_kafka(target.port) as wire:
        wire.write(struct.pack(">ihh", first, KafkaApiKey.METADATA, 1))
        assert len(await wire.until_closed()) < 1_000
    return "closed"


@hostile
async def a_kafka_frame_cut_by_fin(target: Target) -> str:
    async with connect_kafka(target.port) as wire:
        wire.write(WHOLE + WHOLE[:-1], is_last=True)
        await wire.some_response()
        assert await wire.until_closed() == b""
    return "the whole frame answered, closed"


@hostile_by_waiting
async def a_kafka_frame_one_byte_at_a_time(target: Target) -> str:
    async with connect_kafka(target.port) as wire:
        for byte in WHOLE[:-1]:
            wire.write(bytes((byte,)))
            if wire.has_ended:
                break
            await asyncio.sleep(0.05)
        assert await wire.until_closed() == b""
    return "closed"


@hostile
async def kafka_apis_and_versions_that_do_not_exist(target: Target) -> str:
    for key in (24, 26, 36, 65, 68, 76, 88, 92, 200, 255):
        await _ends(target, _frame(key, 0, b"\xff" * 20))
    for api in KAFKA_APIS.values():
        if api.key is not KafkaApiKey.API_VERSIONS:
            await _ends(target, _frame(api.key, api.max_version + 1, b""))
            await _ends(target, _frame(api.key, -1, b""))
    return "closed"


@hostile
async def kafka_client_ids_that_are_none(target: Target) -> str:
    body = encode(MetadataRequest(()), 1)
    for client_id in (b"\x7f\xffab", b"\xff\xfeab", b"\x00\x02\xff\xfe"):
        await _ends(target, _frame(KafkaApiKey.METADATA, 1, body, client_id=client_id))
    control = b"\x1b[2J\n\0" * 40
    async with connect_kafka(target.port) as wire:
        name = struct.pack(">h", len(control)) + control
        wire.write(_frame(KafkaApiKey.METADATA, 1, body, client_id=name))
        await wire.some_response()
    return "closed, and control characters are a name for logs"


@hostile
async def a_hundred_thousand_kafka_requests_and_no_reader(target: Target) -> str:
    """The broker stops reading; what it holds for this client stays bounded."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port, limit=1)
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(target.sized(10_000, 100_000) // 100):
        writer.write(WHOLE * 100)
    try:
        async with asyncio.timeout(2):
            await writer.drain()
    except TimeoutError:
        outcome = "not read any further"
    else:
        outcome = "answered"
    reset(writer)
    del reader
    return outcome


# Bodies


@hostile
async def kafka_bodies_of_huge_counts_nulls_and_nothing(target: Target) -> str:
    """Every api in every version: an array of int32 max elements, a null where nothing may be
    null, a text longer than the frame, tagged fields without end."""
    bodies = (
        b"",
        struct.pack(">i", INT32_MAX) * 5,
        b"\xff" * 20,
        b"\xff\xff\xff\xff\x07" * 4,
        b"\0" * 40,
        b"\x7f\xff" * 10,
        b"\x80" * 60,
    )
    for api in KAFKA_APIS.values():
        versions = range(api.min_version, api.max_version + 1)
        for version in versions if target.full else (versions[0], versions[-1]):
            for body in bodies:
                await _is_answered_or_closed(target, api, version, body)
    return "answered or closed"


@hostile
async def kafka_arrays_in_arrays_beyond_the_limit_of_elements(target: Target) -> str:
    inner = topics.CreatableTopicConfig("", None)
    many = tuple(topics.CreatableTopic("", 1, 1, (), (inner,) * 1_999) for _ in range(11))
    for version in (2, 7):
        body = encode(topics.CreateTopicsRequest(many, 1_000, True), version)
        await _ends(target, _frame(KafkaApiKey.CREATE_TOPICS, version, body))
    partitions = (FetchPartition(0),) * (KafkaRequest.array_max + 1)
    request = FetchRequest(topics=(FetchTopic(TOPIC, NO_ID, partitions),))
    await _ends(target, _frame(KafkaApiKey.FETCH, 12, encode(request, 12)))
    return "closed"


@hostile
async def the_longest_kafka_requests(target: Target) -> str:
    """Each names as many topics as it may, and none of them is there."""
    numbers = range(KafkaRequest.array_max)
    absent = [(uuid.UUID(int=number + 1), (FetchPartition(0),)) for number in numbers]
    names = [f"absent-{number}" for number in numbers]
    end = (ListOffsetsPartition(0, timestamp=-1),)
    metadata = MetadataRequest(tuple(MetadataRequestTopic(NO_ID, name) for name in names))
    listing = ListOffsetsRequest(-1, topics=tuple(ListOffsetsTopic(name, end) for name in names))
    by_id = FetchRequest(topics=tuple(FetchTopic("", *each) for each in absent))
    by_name = FetchRequest(topics=tuple(FetchTopic(name, NO_ID, absent[0][1]) for name in names))
    in_session = replace(by_name, session_epoch=0)

    async def repeat(request: Message, version: int) -> None:
        async with connect_kafka(target.port) as wire:
            await _lives(wire)
            for _ in range(target.sized(2, 20)):
                await wire.call(request, version)

    requests = ((metadata, 12), (listing, 6), (by_id, 13), (by_name, 12), (in_session, 12))
    async with asyncio.TaskGroup() as group:
        for request, version in requests:
            group.create_task(repeat(request, version))
    return "answered"


@hostile
async def kafka_names_of_other_directories(target: Target) -> str:
    before = {str(path) for path in target.data.parent.rglob("*") if path.is_dir()}
    names = ("../x", "a/../b", "..", ".", "/etc", "a\0b", "\x1b[2J", "n" * 250, "n" * 32_000, "")
    async with connect_kafka(target.port) as wire:
        for name in names:
            made = await wire.call(
                topics.CreateTopicsRequest((topics.CreatableTopic(name, 1, 1),)), 4
            )
            assert made.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, name[:40]
            (result,) = (await wire.call(produce(batch(b"x"), topic=name), 9)).responses
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert result.partition_responses[0].error_code == unknown
            described = await wire.call(
                configs.DescribeConfigsRequest((configs.DescribeConfigsResource(2, name, None),)),
                4,
            )
            assert described.results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert {str(path) for path in target.data.parent.rglob("*") if path.is_dir()} == before
    return "INVALID_TOPIC_EXCEPTION and UNKNOWN_TOPIC_OR_PARTITION"


@hostile
async def kafka_numbers_at_their_limits(target: Target) -> str:
    async with connect_kafka(target.port) as wire:
        for number, wide in ((INT32_MAX, 2**63 - 1), (-(2**31), -(2**63))):
            read = FetchPartition(0, number, wide, partition_max_bytes=number)
            request = FetchRequest(
                -1, 0, number, number, topics=(FetchTopic(TOPIC, NO_ID, (read,)),)
            )
            (found,) = (await wire.call(request, 12)).responses[0].partitions
            assert found.error_code
            asked = ListOffsetsTopic(TOPIC, (ListOffsetsPartition(number, -1, wide),))
            (found,) = (await wire.call(ListOffsetsRequest(-1, topics=(asked,)), 11)).topics
            assert found.partitions[0].error_code
            new = topics.CreatableTopic("extreme", number, 32_767)
            made = await wire.call(topics.CreateTopicsRequest((new,), number, True), 7)
            assert made.topics[0].error_code
            resource = configs.DescribeConfigsResource(number >> 24, str(wide), None)
            described = await wire.call(configs.DescribeConfigsRequest((resource,)), 4)
            assert described.results[0].error_code
        await _lives(wire)
    return "typed errors"


@hostile
async def kafka_settings_that_are_none(target: Target) -> str:
    async with connect_kafka(target.port) as wire:
        for value in ("", "-1", "9" * 4_400, "9" * 30_000, "1e9", "\0", "nan", "\u0661"):
            for key in ("segment.bytes", "max.message.bytes", "compression.type", "no.such.key"):
                change = incremental_configs.AlterableConfig(key, 0, value)
                resource = incremental_configs.AlterConfigsResource(2, TOPIC, (change,))
                request = incremental_configs.IncrementalAlterConfigsRequest((resource,))
                (result,) = (await wire.call(request, 1)).responses
                assert result.error_code == ErrorCode.INVALID_CONFIG, (key, value[:20])
    return "INVALID_CONFIG"


@hostile
async def two_thousand_kafka_names_of_8_kib(target: Target) -> str:
    """Long names are echoed and looked up in turns with the work of others."""
    names = tuple(MetadataRequestTopic(NO_ID, f"{n:08}" * 1_000) for n in range(1_900))
    async with connect_kafka(target.port) as wire:
        await _lives(wire)
        answer = await wire.call(MetadataRequest(names, False), 12)
        assert {each.error_code for each in answer.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    return "INVALID_TOPIC_EXCEPTION"


# Batches


@hostile
async def kafka_batches_that_are_none(target: Target) -> str:
    wrong_crc = bytearray(batch(b"x"))
    wrong_crc[-1] ^= 1
    made = (
        b"",
        batch(b"x")[:40],
        batch(b"one") + batch(b"two"),
        bytes(wrong_crc),
        forged(magic=1),
        forged(attributes=7),
        forged(attributes=0x10),
        forged(attributes=0x20),
        forged(record_count=-1),
        forged(record_count=INT32_MAX),
        forged(last_offset_delta=-1),
        forged(base_timestamp=-(2**63)),
        forged(max_timestamp=-(2**63)),
        forged(producer_id=2**62, producer_epoch=0, base_sequence=0),
        forged(producer_id=5, producer_epoch=-1, base_sequence=0),
    )
    async with connect_kafka(target.port) as wire:
        for each in made:
            (result,) = (await wire.call(produce(each), 9)).responses
            assert result.partition_responses[0].error_code
        await _lives(wire)
    return "typed errors"


@hostile
async def kafka_bombs_for_a_topic_that_compresses_anew(target: Target) -> str:
    name = f"anew-{next(_numbers)}"
    setting = (topics.CreatableTopicConfig("compression.type", "lz4"),)
    lies = [*LYING_PAYLOADS.values()] if target.full else [*LYING_PAYLOADS.values()][-6:]
    async with connect_kafka(target.port) as wire:
        new = topics.CreatableTopic(name, 1, 1, (), setting)
        made = await wire.call(topics.CreateTopicsRequest((new,)), 4)
        assert made.topics[0].error_code == ErrorCode.NONE
        for codec, each in bombs().items():
            (result,) = (await wire.call(produce(each, topic=name), 9)).responses
            # The broker does not look into a batch that has the codec of its topic.
            expected = ErrorCode.NONE if codec == "lz4" else ErrorCode.INVALID_RECORD
            assert result.partition_responses[0].error_code == expected, codec
        for each in (*lies, sealed_payload(b"\xff" * 30, count=1, codec=Codec.SNAPPY)):
            # It takes one that it need not look into, or that only a reader finds broken.
            await wire.call(produce(each, topic=name), 9)
        await _lives(wire)
        await wire.call(topics.DeleteTopicsRequest((topics.DeleteTopicState(name),), (name,)), 4)
    return "INVALID_RECORD"


# Groups, sessions, connections


@hostile
async def floods_of_kafka_joins_with_a_hundred_thousand_member_ids(target: Target) -> str:
    protocols = (membership.JoinGroupRequestProtocol("range", b""),)
    codes = set()
    async with connect_kafka(target.port) as wire:
        await wire.call(FindCoordinatorRequest("flood"), 0)
        for number in range(target.sized(2_000, 100_000)):
            member = f"forged-{number}" if number % 2 else ""
            request = membership.JoinGroupRequest(
                "kafka-flood", 6_000, 6_000, member, None, "consumer", protocols
            )
            codes.add((await wire.call(request, 5)).error_code)
        await _lives(wire)
    assert codes == {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID}, codes
    return "MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID"


@hostile
async def more_fetch_sessions_than_there_may_be(target: Target) -> str:
    """Each is kept for a client that may come back; the broker keeps a bounded number."""
    wanted = tuple(FetchPartition(number % PARTITIONS) for number in range(100))
    request = FetchRequest(
        -1, 0, 0, 1, session_epoch=0, topics=(FetchTopic("absent", NO_ID, wanted),)
    )
    sessions = set()
    async with connect_kafka(target.port) as wire:
        for _ in range(SESSIONS_MAX + 100):
            sessions.add((await wire.call(request, 12)).session_id)
        await _lives(wire)
    assert 0 in sessions
    assert len(sessions) <= SESSIONS_MAX + 1
    return f"{len(sessions) - 1} sessions, then none"


@hostile
async def unread_kafka_responses(target: Target) -> str:
    """Fetches of a mebibyte each, never read: the answers stay in the files, not in memory."""
    wanted = tuple(
        FetchPartition(n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(PARTITIONS)
    )
    request = FetchRequest(-1, 0, 1, 1 << 20, topics=(FetchTopic(LARGE, NO_ID, wanted),))
    frame = _frame(KafkaApiKey.FETCH, 12, encode(request, 12))
    async with AsyncExitStack() as stack:
        for _ in range(target.sized(10, 100)):
            wire = await stack.enter_async_context(connect_kafka(target.port))
            wire.stop_reading()
            wire.write(frame * 64)
        other = await stack.enter_async_context(connect_kafka(target.port))
        await _lives(other)
    return "not read any further"


@hostile
async def kafka_connections_that_come_and_go(target: Target) -> str:
    before = target.open_files
    for number in range(target.sized(300, 20_000)):
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write((WHOLE, WHOLE[:9], WHOLE[:4], b"")[number % 4])
        with suppress(OSError):
            reset(writer)
        del reader
    async with connect_kafka(target.port) as wire:
        await _lives(wire)
    await target.until(lambda: target.open_files <= before + 20)
    return "closed"
