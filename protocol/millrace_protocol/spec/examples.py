"""One example of every message, as a whole frame: shown in `wire_spec.md`, pinned by golden files.

Owns the sample values, chosen to tell a story: a client says hello, makes the topic `clicks`,
writes three records, reads them and looks around. The batch is put together by hand, so that the
examples check the batch encoder and not the other way round.
"""

from __future__ import annotations

import uuid

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import encode
from millrace_protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import (
    FRAME_BYTES_MAX,
    refusal_frame,
    request_frame,
    response_frame,
)
from millrace_protocol.messages import (
    admin,
    configs,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    hello,
    list_offsets,
    metadata,
    produce,
    producer_id,
    split_ranges,
)
from millrace_protocol.messages.refusal import Refusal
from millrace_protocol.records import BatchHeader, Codec, assign, seal
from millrace_protocol.records.varint import varint
from millrace_protocol.schema import Message

_TIME_MS = 1_760_000_000_000
_CLIENT_ID = b"shop"
_CLUSTER = "5L6g3nShT-eMCtK--X86sw"
_GZIPPED_RECORDS = bytes.fromhex(
    "1f8b08000000000004ff013000cfff1c000000066164610a2f686f6d650016000202010a"
    "2f63617274002800040406626f6201020c736f75726365067765627d30e6c730000000"
)
"""`_records()` through gzip; written down, because versions of gzip make different bytes."""
_MEMBER = "shop-5b0e3b7c9d1f4e62"
_SUBSCRIPTION = encode_subscription(ConsumerSubscription(("clicks",), None))
_ASSIGNMENT = encode_assignment(ConsumerAssignment((TopicPartitions("clicks", (0,)),), None))
_TOPIC_ID = uuid.UUID("0199c8b1-7a00-7cc1-b1a2-3e5b7f9d1c2e")


def _record(index: int, key: bytes | None, value: bytes | None, headers: bytes = b"\0") -> bytes:
    def sized(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(index) + varint(index) + sized(key) + sized(value) + headers
    return varint(len(body)) + body


def _records() -> bytes:
    """Three records: with a key, without one, and a deletion with a header."""
    header = varint(1) + varint(6) + b"source" + varint(3) + b"web"
    return (
        _record(0, b"ada", b"/home") + _record(1, None, b"/cart") + _record(2, b"bob", None, header)
    )


def _batch(
    payload: bytes, codec: Codec = Codec.NONE, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytearray:
    head = BatchHeader(
        0, 49 + len(payload), -1, 2, 0, codec, 2, _TIME_MS, _TIME_MS + 2, *producer, 3
    )
    batch = bytearray(head.pack() + payload)
    seal(batch)
    return batch


def produced_batch() -> bytes:
    """The batch as a client sends it: base offset 0, leader epoch -1."""
    return bytes(_batch(_records()))


def fetched_batch() -> bytes:
    """The same batch as it is stored and served: the broker gave it offset 40 and epoch 0."""
    batch = _batch(_records())
    assign(batch, base_offset=40, leader_epoch=0)
    return bytes(batch)


_NO_RECORDS = b""
_IDEMPOTENT = bytes(_batch(_GZIPPED_RECORDS, Codec.GZIP, producer=(4_000, 0, 0)))

_MESSAGES: dict[ApiKey, tuple[Message, Message]] = {
    ApiKey.HELLO: (
        hello.HelloRequest("raw-client", "1.0"),
        hello.HelloResponse(
            "millrace",
            "0.1.0",
            _CLUSTER,
            1,
            FRAME_BYTES_MAX,
            64,
            tuple(
                hello.ApiRange(api.key, api.min_version, api.max_version) for api in APIS.values()
            ),
        ),
    ),
    ApiKey.METADATA: (
        metadata.MetadataRequest(("clicks", "nope")),
        metadata.MetadataResponse(
            _CLUSTER,
            1,
            (metadata.BrokerMetadata(1, "127.0.0.1", 9092),),
            (
                metadata.TopicMetadata(
                    0,
                    None,
                    "clicks",
                    _TOPIC_ID,
                    False,
                    (metadata.PartitionMetadata(0, 0, 1, 0, (1,), (1,)),),
                ),
                metadata.TopicMetadata(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "There is no topic nope",
                    "nope",
                    uuid.UUID(int=0),
                    False,
                    (),
                ),
            ),
        ),
    ),
    ApiKey.PRODUCE: (
        produce.ProduceRequest(
            -1, 30_000, (produce.ProducePartition("clicks", 0, produced_batch()),)
        ),
        produce.ProduceResponse((produce.ProducePartitionResult("clicks", 0, 0, None, 40, -1, 0),)),
    ),
    ApiKey.FETCH: (
        fetch.FetchRequest(500, 1, 1 << 20, (fetch.FetchPartition("clicks", 0, -1, 41, 1 << 20),)),
        fetch.FetchResponse(
            (fetch.FetchPartitionResult("clicks", 0, 0, None, 43, 0, fetched_batch()),)
        ),
    ),
    ApiKey.LIST_OFFSETS: (
        list_offsets.ListOffsetsRequest(
            (
                list_offsets.ListOffsetsPartition("clicks", 0, list_offsets.EARLIEST),
                list_offsets.ListOffsetsPartition("clicks", 0, _TIME_MS + 1),
            )
        ),
        list_offsets.ListOffsetsResponse(
            (
                list_offsets.ListOffsetsResult("clicks", 0, 0, None, -1, 0, 0),
                list_offsets.ListOffsetsResult("clicks", 0, 0, None, _TIME_MS + 1, 41, 0),
            )
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: (
        producer_id.InitProducerIdRequest(-1, -1),
        producer_id.InitProducerIdResponse(4_000, 0),
    ),
    ApiKey.CREATE_TOPICS: (
        admin.CreateTopicsRequest(
            (admin.NewTopic("clicks", 1, -1, (admin.TopicConfig("retention.ms", "86400000"),)),),
            False,
        ),
        admin.CreateTopicsResponse((admin.CreatedTopic("clicks", 0, None, _TOPIC_ID, 1, 1),)),
    ),
    ApiKey.DELETE_TOPICS: (
        admin.DeleteTopicsRequest(("clicks",)),
        admin.DeleteTopicsResponse((admin.TopicResult("clicks", 0, None),)),
    ),
    ApiKey.CREATE_PARTITIONS: (
        admin.CreatePartitionsRequest((admin.PartitionCount("clicks", 3),), False),
        admin.CreatePartitionsResponse((admin.TopicResult("clicks", 0, None),)),
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        configs.DescribeConfigsRequest(("clicks",)),
        configs.DescribeConfigsResponse(
            (
                configs.TopicConfigs(
                    "clicks",
                    0,
                    None,
                    (
                        configs.ConfigEntry(
                            "retention.ms",
                            "86400000",
                            False,
                            "milliseconds after which old segments go; -1: never",
                        ),
                    ),
                ),
            )
        ),
    ),
    ApiKey.ALTER_CONFIGS: (
        configs.AlterConfigsRequest(
            (configs.ConfigChanges("clicks", (admin.TopicConfig("retention.ms", None),)),), False
        ),
        configs.AlterConfigsResponse((admin.TopicResult("clicks", 0, None),)),
    ),
    ApiKey.FIND_COORDINATOR: (
        group_membership.FindCoordinatorRequest(("hourly",)),
        group_membership.FindCoordinatorResponse(
            (group_membership.FoundCoordinator("hourly", 0, None, 0, "127.0.0.1", 9092),)
        ),
    ),
    ApiKey.JOIN_GROUP: (
        group_membership.JoinGroupRequest(
            "hourly",
            45_000,
            300_000,
            _MEMBER,
            None,
            "consumer",
            (group_membership.JoinProtocol("range", _SUBSCRIPTION),),
            "a new member",
        ),
        group_membership.JoinGroupResponse(
            1,
            "consumer",
            "range",
            _MEMBER,
            _MEMBER,
            False,
            (group_membership.JoinedMember(_MEMBER, None, _SUBSCRIPTION),),
        ),
    ),
    ApiKey.SYNC_GROUP: (
        group_membership.SyncGroupRequest(
            "hourly",
            1,
            _MEMBER,
            None,
            "consumer",
            "range",
            (group_membership.MemberAssignment(_MEMBER, _ASSIGNMENT),),
        ),
        group_membership.SyncGroupResponse("consumer", "range", _ASSIGNMENT),
    ),
    ApiKey.HEARTBEAT: (
        group_membership.HeartbeatRequest("hourly", 1, _MEMBER, None),
        group_membership.HeartbeatResponse(),
    ),
    ApiKey.LEAVE_GROUP: (
        group_membership.LeaveGroupRequest(
            "hourly", (group_membership.LeavingMember(_MEMBER, None, "closed"),)
        ),
        group_membership.LeaveGroupResponse((group_membership.LeftMember(_MEMBER, None, 0, None),)),
    ),
    ApiKey.OFFSET_COMMIT: (
        group_offsets.OffsetCommitRequest(
            "hourly", 1, _MEMBER, None, (group_offsets.CommitPartition("clicks", 0, 3, 0, "ada"),)
        ),
        group_offsets.OffsetCommitResponse(
            (group_offsets.CommittedPartition("clicks", 0, 0, None),)
        ),
    ),
    ApiKey.OFFSET_FETCH: (
        group_offsets.OffsetFetchRequest("hourly", None),
        group_offsets.OffsetFetchResponse(
            (group_offsets.CommittedOffset("clicks", 0, 0, None, 3, 0, "ada", _TIME_MS),)
        ),
    ),
    ApiKey.OFFSET_DELETE: (
        group_offsets.OffsetDeleteRequest("hourly", (group_offsets.GroupPartition("clicks", 0),)),
        group_offsets.OffsetDeleteResponse(
            (group_offsets.CommittedPartition("clicks", 0, 0, None),)
        ),
    ),
    ApiKey.LIST_GROUPS: (
        group_admin.ListGroupsRequest(()),
        group_admin.ListGroupsResponse(
            (group_admin.ListedGroup("hourly", "Stable", "consumer", 1),)
        ),
    ),
    ApiKey.DESCRIBE_GROUPS: (
        group_admin.DescribeGroupsRequest(("hourly",)),
        group_admin.DescribeGroupsResponse(
            (
                group_admin.DescribedGroup(
                    "hourly",
                    0,
                    None,
                    "Stable",
                    1,
                    "consumer",
                    "range",
                    _MEMBER,
                    (
                        group_admin.DescribedMember(
                            _MEMBER, None, "shop", "127.0.0.1:50412", _SUBSCRIPTION, _ASSIGNMENT
                        ),
                    ),
                ),
            )
        ),
    ),
    ApiKey.DELETE_GROUPS: (
        group_admin.DeleteGroupsRequest(("hourly",)),
        group_admin.DeleteGroupsResponse((group_admin.DeletedGroup("hourly", 0, None),)),
    ),
    ApiKey.SPLIT_RANGES: (
        split_ranges.SplitRangesRequest(
            (split_ranges.PartitionRange("clicks", 0, 0, 43, 128 << 20),)
        ),
        split_ranges.SplitRangesResponse(
            (
                split_ranges.PartitionPieces(
                    "clicks", 0, 0, None, 0, (split_ranges.RangePiece(43, 5_310),)
                ),
            )
        ),
    ),
}


def _frames() -> dict[str, bytes]:
    frames = {}
    for correlation_id, (key, (request, response)) in enumerate(_MESSAGES.items(), 1):
        name = slug(key)
        frames[f"{name}-request"] = request_frame(
            api=key,
            version=0,
            correlation_id=correlation_id,
            client_id=_CLIENT_ID,
            body=encode(request, 0),
        )
        frames[f"{name}-response"] = response_frame(
            api=key, version=0, correlation_id=correlation_id, body=encode(response, 0)
        )
    frames["refusal"] = refusal_frame(
        api=ApiKey.FETCH,
        version=9,
        correlation_id=12,
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        refusal=Refusal("Fetch is spoken in version 0 here, not in 9", 0, 0),
    )
    frames["produce-request-idempotent-gzip"] = request_frame(
        api=ApiKey.PRODUCE,
        version=0,
        correlation_id=13,
        client_id=_CLIENT_ID,
        body=encode(
            produce.ProduceRequest(
                -1, 30_000, (produce.ProducePartition("clicks", 0, _IDEMPOTENT),)
            ),
            0,
        ),
    )
    frames["fetch-response-error"] = response_frame(
        api=ApiKey.FETCH,
        version=0,
        correlation_id=14,
        body=encode(
            fetch.FetchResponse(
                (
                    fetch.FetchPartitionResult(
                        "clicks",
                        0,
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        "Offset 99 is outside 0 to 43; ask ListOffsets for the valid range",
                        43,
                        0,
                        _NO_RECORDS,
                    ),
                )
            ),
            0,
        ),
    )
    return frames


def slug(key: ApiKey) -> str:
    """An api's name as part of an anchor or a file name: `create-topics`."""
    return key.name.lower().replace("_", "-")


EXAMPLES: dict[str, bytes] = _frames()
"""Whole frames by name: `fetch-request`, `fetch-response`, ..., `refusal`, and a few more."""
