"""Attacks on the bodies: counts, lengths, nulls and names (wire_spec.md W-3, W-6)."""

from __future__ import annotations

import struct

from millrace_protocol.api import ApiKey
from millrace_protocol.codec import encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    PartitionCount,
    TopicConfig,
)
from millrace_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigChanges,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from millrace_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from millrace_protocol.messages.hello import HelloRequest
from millrace_protocol.messages.leader_epochs import EpochPartition, OffsetForLeaderEpochRequest
from millrace_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_protocol.messages.split_ranges import (
    PartitionRange,
    SplitRangesRequest,
    SplitRangesResponse,
)
from tests.broker.wire import Wire, batch, connect, fetch_request
from tests.hostile.attack import hostile, lives, refused, refused_body
from tests.hostile.target import PARTITIONS, TOPIC, Target

INT32_MAX = 2**31 - 1
HUGE_COUNT = struct.pack(">i", INT32_MAX)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@hostile
async def an_array_of_int32_max_elements_in_20_bytes(target: Target) -> str:
    bodies = {
        ApiKey.METADATA: HUGE_COUNT,
        ApiKey.PRODUCE: struct.pack(">hi", 1, 0) + HUGE_COUNT,
        ApiKey.FETCH: struct.pack(">iii", 0, 0, 0) + HUGE_COUNT,
        ApiKey.LIST_OFFSETS: HUGE_COUNT,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: HUGE_COUNT,
        ApiKey.CREATE_TOPICS: HUGE_COUNT,
        ApiKey.DELETE_TOPICS: HUGE_COUNT,
        ApiKey.CREATE_PARTITIONS: HUGE_COUNT,
        ApiKey.DESCRIBE_CONFIGS: HUGE_COUNT,
        ApiKey.ALTER_CONFIGS: HUGE_COUNT,
        ApiKey.DELETE_RECORDS: HUGE_COUNT,
        ApiKey.DESCRIBE_LOG_DIRS: HUGE_COUNT,
        ApiKey.SPLIT_RANGES: HUGE_COUNT,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: HUGE_COUNT,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: HUGE_COUNT,
        ApiKey.ELECT_LEADERS: HUGE_COUNT,
    }
    async with connect(target.port) as wire:
        for api, body in bodies.items():
            await refused_body(wire, api, body)
    return "refused INVALID_REQUEST"


@hostile
async def arrays_in_arrays_beyond_the_limit_of_elements(target: Target) -> str:
    """Each count is allowed for itself; together they would keep the broker busy."""
    inner = TopicConfig("", None)
    topics = tuple(NewTopic("", 1, 1, (inner,) * 1_999) for _ in range(11))
    body = encode(CreateTopicsRequest(topics, True), 0)
    async with connect(target.port) as wire:
        return await refused_body(wire, ApiKey.CREATE_TOPICS, body)


@hostile
async def more_partitions_than_a_request_may_name(target: Target) -> str:
    async with connect(target.port) as wire:
        for request in (
            fetch_request([(TOPIC, 0, 0)] * 2_001),
            ListOffsetsRequest((ListOffsetsPartition(TOPIC, 0, -1),) * 2_001),
            OffsetForLeaderEpochRequest((EpochPartition(TOPIC, 0, -1, 0),) * 2_001),
            SplitRangesRequest((PartitionRange(TOPIC, 0, 0, 0, 1),) * 2_001),
            MetadataRequest(("x",) * 2_001),
            DescribeConfigsRequest(("x",) * 2_001),
            DescribeConfigsRequest((), (0,) * 2_001),
            DeleteRecordsRequest((DeleteRecordsPartition(TOPIC, 0, 0),) * 2_001),
        ):
            wire.send(request)
            await refused(wire, ErrorCode.INVALID_REQUEST)
        await lives(wire)
    return "refused INVALID_REQUEST"


@hostile
async def null_where_nothing_may_be_null(target: Target) -> str:
    null_text, null_array = b"\xff\xff", b"\xff\xff\xff\xff"
    one = struct.pack(">i", 1)
    async with connect(target.port) as wire:
        await refused_body(wire, ApiKey.HELLO, null_text + null_text)
        await refused_body(wire, ApiKey.METADATA, one + null_text)
        await refused_body(wire, ApiKey.DELETE_TOPICS, null_array)
        await refused_body(wire, ApiKey.FETCH, struct.pack(">iii", 0, 0, 0) + null_array)
        produce = struct.pack(">hi", 1, 0) + one + b"\0\x07hostile" + bytes(4)
        await refused_body(wire, ApiKey.PRODUCE, produce + null_array)
        return await refused_body(wire, ApiKey.PRODUCE, struct.pack(">hi", 1, 0) + null_array)


@hostile
async def a_string_longer_than_its_frame(target: Target) -> str:
    async with connect(target.port) as wire:
        await refused_body(wire, ApiKey.HELLO, b"\x7f\xffab")
        produce = struct.pack(">hi", 1, 0) + struct.pack(">i", 1) + b"\0\x07hostile" + bytes(4)
        await refused_body(wire, ApiKey.PRODUCE, produce + HUGE_COUNT + b"x")
        return await refused_body(wire, ApiKey.HELLO, b"\x80\x00ab")


@hostile
async def a_string_that_is_not_utf8(target: Target) -> str:
    async with connect(target.port) as wire:
        for name in (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"):
            size = struct.pack(">h", len(name))
            await refused_body(wire, ApiKey.HELLO, size + name + b"\0\0")
            body = struct.pack(">iiii", 0, 0, 0, 1) + size + name + bytes(20)
            outcome = await refused_body(wire, ApiKey.FETCH, body)
    return outcome


@hostile
async def bytes_behind_a_body(target: Target) -> str:
    requests = (
        HelloRequest("a", "b"),
        MetadataRequest(()),
        fetch_request([(TOPIC, 0, 0)]),
        ProduceRequest(1, 1_000, (ProducePartition(TOPIC, 0, batch(b"x")),)),
        ListOffsetsRequest((ListOffsetsPartition(TOPIC, 0, -1),)),
    )
    apis = (ApiKey.HELLO, ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS)
    async with connect(target.port) as wire:
        for api, request in zip(apis, requests, strict=True):
            outcome = await refused_body(wire, api, encode(request, 0) + b"\0")
    return outcome


async def _with_name(wire: Wire, name: str) -> set[ErrorCode]:
    """Everything that takes a topic's name, with this one; the codes of the answers."""
    configs = (TopicConfig("retention.ms", "1"),)
    answers = (
        await wire.ask(MetadataRequest((name,)), MetadataResponse),
        await wire.ask(
            CreateTopicsRequest((NewTopic(name, 1, 1, ()),), False), CreateTopicsResponse
        ),
        await wire.ask(DeleteTopicsRequest((name,)), DeleteTopicsResponse),
        await wire.ask(
            CreatePartitionsRequest((PartitionCount(name, 9),), False), CreatePartitionsResponse
        ),
        await wire.ask(DescribeConfigsRequest((name,)), DescribeConfigsResponse),
        await wire.ask(
            AlterConfigsRequest((ConfigChanges(name, configs),), False), AlterConfigsResponse
        ),
    )
    codes = {ErrorCode(topic.error_code) for answer in answers for topic in answer.topics}
    listed = ListOffsetsRequest((ListOffsetsPartition(name, 0, -1),))
    produce = ProduceRequest(1, 1_000, (ProducePartition(name, 0, batch(b"x")),))
    by_partition = (
        await wire.ask(fetch_request([(name, 0, 0)]), FetchResponse),
        await wire.ask(listed, ListOffsetsResponse),
        await wire.ask(produce, ProduceResponse),
    )
    codes |= {ErrorCode(p.error_code) for answer in by_partition for p in answer.partitions}
    return codes


def _directories(target: Target) -> set[str]:
    return {str(path) for path in target.data.parent.rglob("*") if path.is_dir()}


async def _bad_names(target: Target, *names: str) -> str:
    before = _directories(target)
    async with connect(target.port) as wire:
        for name in names:
            codes = await _with_name(wire, name)
            assert codes == {ErrorCode.INVALID_TOPIC_EXCEPTION, UNKNOWN}, (name[:40], codes)
    assert _directories(target) == before
    return "INVALID_TOPIC_EXCEPTION and UNKNOWN_TOPIC_OR_PARTITION"


@hostile
async def names_of_other_directories(target: Target) -> str:
    return await _bad_names(
        target, "..", ".", "../evil", "../../etc/passwd", "/tmp/evil", "a/../../b", "a\\b"
    )


@hostile
async def names_with_nul_and_control_characters(target: Target) -> str:
    return await _bad_names(target, "\0", "a\0b", "a\nb", "\x1b[2J", "\u202e", "")


@hostile
async def names_of_32_kib(target: Target) -> str:
    return await _bad_names(target, "n" * 32_767, "\0" * 32_767, "\u00e9" * 16_000, "'" * 32_767)


@hostile
async def two_thousand_names_of_8_kib(target: Target) -> str:
    """An answer repeats the names of its request and says what is wrong with each."""
    names = [f"{number:08d}" * 1_000 for number in range(2_000)]
    asked = tuple(FetchPartition(name, 0, -1, 0, 1) for name in names)
    async with connect(target.port) as wire:
        answer = await wire.ask(FetchRequest(0, 1, 1, asked), FetchResponse)
        assert {p.error_code for p in answer.partitions} == {UNKNOWN}
        metadata = await wire.ask(MetadataRequest(tuple(names)), MetadataResponse)
        assert {t.error_code for t in metadata.topics} == {UNKNOWN}
    return "UNKNOWN_TOPIC_OR_PARTITION"


@hostile
async def numbers_at_their_limits(target: Target) -> str:
    """Partitions, offsets, sizes, times and epochs that no client means."""
    extremes = (-(2**31), -1, INT32_MAX)
    async with connect(target.port) as wire:
        for number in extremes:
            wide = -(2**63) if number < -1 else 2**63 - 1 if number > 0 else -9
            asked = tuple(FetchPartition(TOPIC, p, number, wide, number) for p in (0, number))
            answer = await wire.ask(FetchRequest(0, number, number, asked), FetchResponse)
            # Without room for a byte an offset is not looked at (W-4.4.2).
            assert all(p.error_code for p in answer.partitions[number == -1 :])
            questions = tuple(
                ListOffsetsPartition(TOPIC, p, t) for p in (0, number) for t in (wide, number)
            )
            listed = await wire.ask(ListOffsetsRequest(questions), ListOffsetsResponse)
            assert all(p.offset >= -1 for p in listed.partitions)
            ranges = tuple(
                PartitionRange(TOPIC, p, start, end, size)
                for p in (0, number)
                for start, end in ((0, wide), (wide, 0), (wide, wide), (wide, -wide - 1))
                for size in (wide, number)
            )
            cut = await wire.ask(SplitRangesRequest(ranges), SplitRangesResponse)
            assert all(p.error_code and not p.pieces for p in cut.partitions)
            widened = await wire.widen(TOPIC, number)
            assert widened.error_code == ErrorCode.INVALID_PARTITIONS
            made = await wire.create("extreme", partitions=number, validate_only=True)
            assert made.error_code in (0, ErrorCode.INVALID_PARTITIONS), made
            made = await wire.create("extreme", replication_factor=INT32_MAX // 2**16)
            assert made.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            producer_id, epoch = await wire.producer_id(wide, -(2**15))
            assert producer_id >= 0 and epoch == 0
        assert len((await wire.topic(TOPIC)).partitions) == PARTITIONS
    return "typed errors"


@hostile
async def settings_that_are_none(target: Target) -> str:
    values = ("", "-1", "9" * 4_400, "9" * 30_000, "1e9", "\0", "nan", "\u0661")
    async with connect(target.port) as wire:
        for value in values:
            for key in ("segment.bytes", "max.message.bytes", "durability", "no.such.key"):
                result = await wire.alter(TOPIC, {key: value})
                assert result.error_code == ErrorCode.INVALID_CONFIG, (key, value[:20], result)
        long = await wire.alter(TOPIC, {"k" * 32_767: "v" * 32_767})
        assert long.error_code == ErrorCode.INVALID_CONFIG
    return "INVALID_CONFIG"


@hostile
async def acks_that_do_not_exist(target: Target) -> str:
    async with connect(target.port) as wire:
        for acks in (-(2**15), -2, 2, 2**15 - 1):
            wire.send(ProduceRequest(acks, 1_000, (ProducePartition(TOPIC, 0, batch(b"x")),)))
            outcome = await refused(wire, ErrorCode.INVALID_REQUIRED_ACKS)
        await lives(wire)
    return outcome


@hostile
async def more_topics_than_the_broker_may_have(target: Target) -> str:
    async with connect(target.port) as wire:
        topics = tuple(NewTopic(f"flood-{n}", 1_000, -1, ()) for n in range(5))
        answer = await wire.ask(CreateTopicsRequest(topics, True), CreateTopicsResponse)
        assert {t.error_code for t in answer.topics} <= {0, ErrorCode.INVALID_PARTITIONS}
        over = await wire.create("flood", partitions=4_001)
        assert over.error_code == ErrorCode.INVALID_PARTITIONS
        assert over.error_message
    return "INVALID_PARTITIONS"
