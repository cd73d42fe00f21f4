"""The apis there are: key, name, version range, and the messages of each (wire_spec.md W-4).

An api that Apache Kafka also has carries Kafka's key, because people know the numbers. Apis that
Kafka has not are numbered from 1000.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from millrace_protocol.messages import (
    admin,
    configs,
    delete_records,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    hello,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producer_id,
    split_ranges,
    statistics,
)
from millrace_protocol.schema import Message


class ApiKey(IntEnum):
    """The number of an api in a frame header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    HELLO = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    SPLIT_RANGES = 1000
    DESCRIBE_STATISTICS = 1001


@dataclass(frozen=True, slots=True)
class Api:
    """One api. Versions run from `min_version` to `max_version`, both included."""

    key: ApiKey
    request: type[Message]
    response: type[Message]
    min_version: int = 0
    max_version: int = 0

    @property
    def name(self) -> str:
        """`CreateTopics`"""
        return self.request.__name__.removesuffix("Request")


APIS: dict[ApiKey, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.HELLO, hello.HelloRequest, hello.HelloResponse),
        Api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataResponse),
        Api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceResponse),
        Api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse),
        Api(ApiKey.LIST_OFFSETS, list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
        Api(
            ApiKey.INIT_PRODUCER_ID,
            producer_id.InitProducerIdRequest,
            producer_id.InitProducerIdResponse,
        ),
        Api(ApiKey.CREATE_TOPICS, admin.CreateTopicsRequest, admin.CreateTopicsResponse),
        Api(ApiKey.DELETE_TOPICS, admin.DeleteTopicsRequest, admin.DeleteTopicsResponse),
        Api(
            ApiKey.CREATE_PARTITIONS, admin.CreatePartitionsRequest, admin.CreatePartitionsResponse
        ),
        Api(
            ApiKey.DESCRIBE_CONFIGS, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse
        ),
        Api(ApiKey.ALTER_CONFIGS, configs.AlterConfigsRequest, configs.AlterConfigsResponse),
        Api(
            ApiKey.FIND_COORDINATOR,
            group_membership.FindCoordinatorRequest,
            group_membership.FindCoordinatorResponse,
        ),
        Api(
            ApiKey.JOIN_GROUP, group_membership.JoinGroupRequest, group_membership.JoinGroupResponse
        ),
        Api(
            ApiKey.SYNC_GROUP, group_membership.SyncGroupRequest, group_membership.SyncGroupResponse
        ),
        Api(
            ApiKey.HEARTBEAT, group_membership.HeartbeatRequest, group_membership.HeartbeatResponse
        ),
        Api(
            ApiKey.LEAVE_GROUP,
            group_membership.LeaveGroupRequest,
            group_membership.LeaveGroupResponse,
        ),
        Api(
            ApiKey.OFFSET_COMMIT,
            group_offsets.OffsetCommitRequest,
            group_offsets.OffsetCommitResponse,
        ),
        Api(
            ApiKey.OFFSET_FETCH, group_offsets.OffsetFetchRequest, group_offsets.OffsetFetchResponse
        ),
        Api(
            ApiKey.OFFSET_DELETE,
            group_offsets.OffsetDeleteRequest,
            group_offsets.OffsetDeleteResponse,
        ),
        Api(ApiKey.LIST_GROUPS, group_admin.ListGroupsRequest, group_admin.ListGroupsResponse),
        Api(
            ApiKey.DESCRIBE_GROUPS,
            group_admin.DescribeGroupsRequest,
            group_admin.DescribeGroupsResponse,
        ),
        Api(
            ApiKey.DELETE_GROUPS, group_admin.DeleteGroupsRequest, group_admin.DeleteGroupsResponse
        ),
        Api(
            ApiKey.DELETE_RECORDS,
            delete_records.DeleteRecordsRequest,
            delete_records.DeleteRecordsResponse,
        ),
        Api(
            ApiKey.DESCRIBE_LOG_DIRS,
            log_dirs.DescribeLogDirsRequest,
            log_dirs.DescribeLogDirsResponse,
        ),
        Api(ApiKey.SPLIT_RANGES, split_ranges.SplitRangesRequest, split_ranges.SplitRangesResponse),
        Api(
            ApiKey.DESCRIBE_STATISTICS,
            statistics.DescribeStatisticsRequest,
            statistics.DescribeStatisticsResponse,
        ),
    )
}


def negotiate(key: ApiKey, min_version: int, max_version: int) -> int | None:
    """The highest version both sides speak, or None when the ranges do not meet.

    >>> negotiate(ApiKey.FETCH, 0, 99) == APIS[ApiKey.FETCH].max_version
    True
    """
    ours = APIS[key]
    version = min(ours.max_version, max_version)
    return version if version >= max(ours.min_version, min_version) else None
