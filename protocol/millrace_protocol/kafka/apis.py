"""The apis of Kafka that the broker has: number, messages, and the versions that it serves.

The first version is that of Kafka 4 (KIP-896); below it a connection is closed, as Kafka does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from millrace_protocol.kafka.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from millrace_protocol.kafka.active_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from millrace_protocol.kafka.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millrace_protocol.kafka.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from millrace_protocol.kafka.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from millrace_protocol.kafka.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from millrace_protocol.kafka.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from millrace_protocol.kafka.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from millrace_protocol.kafka.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from millrace_protocol.kafka.elections import ElectLeadersRequest, ElectLeadersResponse
from millrace_protocol.kafka.fetch import FetchRequest, FetchResponse
from millrace_protocol.kafka.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millrace_protocol.kafka.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millrace_protocol.kafka.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millrace_protocol.kafka.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millrace_protocol.kafka.incremental_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millrace_protocol.kafka.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from millrace_protocol.kafka.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from millrace_protocol.kafka.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from millrace_protocol.kafka.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.kafka.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from millrace_protocol.kafka.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from millrace_protocol.kafka.produce import ProduceRequest, ProduceResponse
from millrace_protocol.kafka.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from millrace_protocol.kafka.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from millrace_protocol.kafka.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millrace_protocol.kafka.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from millrace_protocol.kafka.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from millrace_protocol.kafka.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from millrace_protocol.schema import Message


class KafkaApiKey(IntEnum):
    """Kafka's numbers."""

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
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True, slots=True)
class KafkaApi:
    """One api. `advertised_min` is the first version that ApiVersions names."""

    key: KafkaApiKey
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    advertised_min: int

    def is_flexible(self, version: int) -> bool:
        """Whether a version has compact lengths and tagged fields (KIP-482)."""
        since = self.request.flexible_since
        return since is not None and since <= version


def _api(
    key: KafkaApiKey,
    request: type[Message],
    response: type[Message],
    versions: range,
    *,
    advertised_min: int | None = None,
) -> KafkaApi:
    first = versions.start
    shown = first if advertised_min is None else advertised_min
    name = request.__name__.removesuffix("Request")
    return KafkaApi(key, name, request, response, first, versions.stop - 1, shown)


_KEY = KafkaApiKey
_ALL = (
    # A client of early 2025 that is told of 3 as the first version sends its batches without
    # compression (KAFKA-18659): Kafka names 0, and so does this broker.
    _api(_KEY.PRODUCE, ProduceRequest, ProduceResponse, range(3, 14), advertised_min=0),
    _api(_KEY.FETCH, FetchRequest, FetchResponse, range(4, 19)),
    _api(_KEY.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, range(1, 12)),
    _api(_KEY.METADATA, MetadataRequest, MetadataResponse, range(14)),
    _api(_KEY.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, range(2, 11)),
    _api(_KEY.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, range(1, 11)),
    _api(_KEY.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse, range(7)),
    _api(_KEY.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse, range(10)),
    _api(_KEY.HEARTBEAT, HeartbeatRequest, HeartbeatResponse, range(5)),
    _api(_KEY.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, range(6)),
    _api(_KEY.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse, range(6)),
    _api(_KEY.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse, range(7)),
    _api(_KEY.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse, range(6)),
    _api(_KEY.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse, range(2)),
    _api(_KEY.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, range(5)),
    _api(_KEY.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, range(2, 8)),
    _api(_KEY.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse, range(1, 7)),
    _api(_KEY.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse, range(3)),
    _api(_KEY.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse, range(6)),
    _api(
        _KEY.OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        range(2, 5),
    ),
    _api(_KEY.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse, range(1, 4)),
    _api(_KEY.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse, range(1, 4)),
    _api(_KEY.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse, range(1, 4)),
    _api(_KEY.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse, range(1, 5)),
    _api(_KEY.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse, range(3)),
    _api(_KEY.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse, range(1, 6)),
    _api(_KEY.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse, range(3)),
    _api(_KEY.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse, range(4)),
    _api(_KEY.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse, range(3)),
    _api(_KEY.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse, range(3)),
    _api(
        _KEY.INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        range(2),
    ),
    _api(
        _KEY.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        range(2),
    ),
    _api(
        _KEY.LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        range(1),
    ),
    _api(_KEY.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, range(1)),
    _api(
        _KEY.DESCRIBE_CLIENT_QUOTAS,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
        range(2),
    ),
    _api(_KEY.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest, AlterClientQuotasResponse, range(2)),
    _api(
        _KEY.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        range(1),
    ),
    _api(
        _KEY.ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        range(1),
    ),
    _api(_KEY.DESCRIBE_QUORUM, DescribeQuorumRequest, DescribeQuorumResponse, range(3)),
    _api(_KEY.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse, range(3)),
    _api(_KEY.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse, range(1)),
    _api(
        _KEY.CONSUMER_GROUP_DESCRIBE,
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        range(2),
    ),
    _api(
        _KEY.DESCRIBE_TOPIC_PARTITIONS,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        range(1),
    ),
)
KAFKA_APIS: dict[int, KafkaApi] = {int(api.key): api for api in _ALL}
"""By number."""
