"""The apis there are: key, name, version range, and the messages of each (wire_spec.md W-4).

An api that Apache Kafka also has carries Kafka's key, because people know the numbers. Apis that
Kafka has not are numbered from 1000.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, IntEnum, auto

from millrace_protocol.messages import (
    acls,
    admin,
    alter_partition,
    authenticate,
    broker_hello,
    broker_lifecycle,
    client_quotas,
    configs,
    delete_records,
    elections,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    hello,
    leader_epochs,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producer_id,
    quorum,
    raft_voters,
    reassignments,
    replica_fetch,
    replica_read,
    retirement,
    scram_credentials,
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
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    FETCH_SNAPSHOT = 59
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    ALLOCATE_PRODUCER_IDS = 67
    ASSIGN_REPLICAS = 73
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    SPLIT_RANGES = 1000
    DESCRIBE_STATISTICS = 1001
    RETIRE_BROKER = 1002
    BROKER_HELLO = 1010
    QUORUM_FETCH = 1011
    REPLICA_FETCH = 1012
    REPLICA_READ = 1013


class Listener(Flag):
    """The two ports of a broker: one for clients, one for the brokers of its cluster (W-12)."""

    CLIENT = auto()
    BROKER = auto()


@dataclass(frozen=True, slots=True)
class Api:
    """One api. Versions run from `min_version` to `max_version`, both included.

    `listeners` are those that it is served on.
    """

    key: ApiKey
    request: type[Message]
    response: type[Message]
    min_version: int = 0
    max_version: int = 0
    listeners: Listener = Listener.CLIENT

    @property
    def name(self) -> str:
        """`CreateTopics`"""
        return self.request.__name__.removesuffix("Request")


_BOTH = Listener.CLIENT | Listener.BROKER

_CLIENT_APIS = (
    Api(ApiKey.HELLO, hello.HelloRequest, hello.HelloResponse, listeners=_BOTH),
    Api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataResponse),
    Api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceResponse),
    Api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse),
    Api(ApiKey.LIST_OFFSETS, list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    Api(
        ApiKey.INIT_PRODUCER_ID,
        producer_id.InitProducerIdRequest,
        producer_id.InitProducerIdResponse,
    ),
    Api(
        ApiKey.CREATE_TOPICS, admin.CreateTopicsRequest, admin.CreateTopicsResponse, listeners=_BOTH
    ),
    Api(
        ApiKey.DELETE_TOPICS, admin.DeleteTopicsRequest, admin.DeleteTopicsResponse, listeners=_BOTH
    ),
    Api(
        ApiKey.CREATE_PARTITIONS,
        admin.CreatePartitionsRequest,
        admin.CreatePartitionsResponse,
        listeners=_BOTH,
    ),
    Api(ApiKey.DESCRIBE_CONFIGS, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse),
    Api(
        ApiKey.ALTER_CONFIGS,
        configs.AlterConfigsRequest,
        configs.AlterConfigsResponse,
        listeners=_BOTH,
    ),
    Api(
        ApiKey.FIND_COORDINATOR,
        group_membership.FindCoordinatorRequest,
        group_membership.FindCoordinatorResponse,
    ),
    Api(ApiKey.JOIN_GROUP, group_membership.JoinGroupRequest, group_membership.JoinGroupResponse),
    Api(ApiKey.SYNC_GROUP, group_membership.SyncGroupRequest, group_membership.SyncGroupResponse),
    Api(ApiKey.HEARTBEAT, group_membership.HeartbeatRequest, group_membership.HeartbeatResponse),
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
    Api(ApiKey.OFFSET_FETCH, group_offsets.OffsetFetchRequest, group_offsets.OffsetFetchResponse),
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
    Api(ApiKey.DELETE_GROUPS, group_admin.DeleteGroupsRequest, group_admin.DeleteGroupsResponse),
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
    Api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        leader_epochs.OffsetForLeaderEpochRequest,
        leader_epochs.OffsetForLeaderEpochResponse,
    ),
    Api(ApiKey.SPLIT_RANGES, split_ranges.SplitRangesRequest, split_ranges.SplitRangesResponse),
    Api(
        ApiKey.DESCRIBE_STATISTICS,
        statistics.DescribeStatisticsRequest,
        statistics.DescribeStatisticsResponse,
    ),
    Api(
        ApiKey.DESCRIBE_QUORUM,
        quorum.DescribeQuorumRequest,
        quorum.DescribeQuorumResponse,
        listeners=_BOTH,
    ),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        reassignments.AlterPartitionReassignmentsRequest,
        reassignments.AlterPartitionReassignmentsResponse,
        listeners=_BOTH,
    ),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        reassignments.ListPartitionReassignmentsRequest,
        reassignments.ListPartitionReassignmentsResponse,
        listeners=_BOTH,
    ),
    Api(
        ApiKey.ELECT_LEADERS,
        elections.ElectLeadersRequest,
        elections.ElectLeadersResponse,
        listeners=_BOTH,
    ),
    Api(
        ApiKey.RETIRE_BROKER,
        retirement.RetireBrokerRequest,
        retirement.RetireBrokerResponse,
        listeners=_BOTH,
    ),
    Api(
        ApiKey.ADD_RAFT_VOTER,
        raft_voters.AddRaftVoterRequest,
        raft_voters.AddRaftVoterResponse,
        listeners=_BOTH,
    ),
    Api(
        ApiKey.REMOVE_RAFT_VOTER,
        raft_voters.RemoveRaftVoterRequest,
        raft_voters.RemoveRaftVoterResponse,
        listeners=_BOTH,
    ),
    Api(
        ApiKey.AUTHENTICATE,
        authenticate.AuthenticateRequest,
        authenticate.AuthenticateResponse,
    ),
    Api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        scram_credentials.DescribeUserScramCredentialsRequest,
        scram_credentials.DescribeUserScramCredentialsResponse,
    ),
    Api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        scram_credentials.AlterUserScramCredentialsRequest,
        scram_credentials.AlterUserScramCredentialsResponse,
        listeners=_BOTH,
    ),
    Api(ApiKey.DESCRIBE_ACLS, acls.DescribeAclsRequest, acls.DescribeAclsResponse),
    Api(ApiKey.CREATE_ACLS, acls.CreateAclsRequest, acls.CreateAclsResponse, listeners=_BOTH),
    Api(ApiKey.DELETE_ACLS, acls.DeleteAclsRequest, acls.DeleteAclsResponse, listeners=_BOTH),
    Api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        client_quotas.DescribeClientQuotasRequest,
        client_quotas.DescribeClientQuotasResponse,
    ),
    Api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        client_quotas.AlterClientQuotasRequest,
        client_quotas.AlterClientQuotasResponse,
        listeners=_BOTH,
    ),
)

_BROKER_APIS = tuple(
    Api(key, request, response, listeners=Listener.BROKER)
    for key, request, response in (
        (ApiKey.BROKER_HELLO, broker_hello.BrokerHelloRequest, broker_hello.BrokerHelloResponse),
        (ApiKey.VOTE, quorum.VoteRequest, quorum.VoteResponse),
        (
            ApiKey.BEGIN_QUORUM_EPOCH,
            quorum.BeginQuorumEpochRequest,
            quorum.BeginQuorumEpochResponse,
        ),
        (ApiKey.END_QUORUM_EPOCH, quorum.EndQuorumEpochRequest, quorum.EndQuorumEpochResponse),
        (ApiKey.QUORUM_FETCH, quorum.QuorumFetchRequest, quorum.QuorumFetchResponse),
        (ApiKey.FETCH_SNAPSHOT, quorum.FetchSnapshotRequest, quorum.FetchSnapshotResponse),
        (
            ApiKey.BROKER_REGISTRATION,
            broker_lifecycle.BrokerRegistrationRequest,
            broker_lifecycle.BrokerRegistrationResponse,
        ),
        (
            ApiKey.BROKER_HEARTBEAT,
            broker_lifecycle.BrokerHeartbeatRequest,
            broker_lifecycle.BrokerHeartbeatResponse,
        ),
        (
            ApiKey.ASSIGN_REPLICAS,
            broker_lifecycle.AssignReplicasRequest,
            broker_lifecycle.AssignReplicasResponse,
        ),
        (
            ApiKey.ALLOCATE_PRODUCER_IDS,
            broker_lifecycle.AllocateProducerIdsRequest,
            broker_lifecycle.AllocateProducerIdsResponse,
        ),
        (
            ApiKey.ALTER_PARTITION,
            alter_partition.AlterPartitionRequest,
            alter_partition.AlterPartitionResponse,
        ),
        (
            ApiKey.REPLICA_FETCH,
            replica_fetch.ReplicaFetchRequest,
            replica_fetch.ReplicaFetchResponse,
        ),
        (ApiKey.REPLICA_READ, replica_read.ReplicaReadRequest, replica_read.ReplicaReadResponse),
    )
)

APIS: dict[ApiKey, Api] = {api.key: api for api in (*_CLIENT_APIS, *_BROKER_APIS)}


def apis_of(listener: Listener) -> dict[ApiKey, Api]:
    """The apis that are served on a listener.

    >>> ApiKey.VOTE in apis_of(Listener.CLIENT)
    False
    """
    return {key: api for key, api in APIS.items() if listener in api.listeners}


def negotiate(key: ApiKey, min_version: int, max_version: int) -> int | None:
    """The highest version both sides speak, or None when the ranges do not meet.

    >>> negotiate(ApiKey.FETCH, 0, 99) == APIS[ApiKey.FETCH].max_version
    True
    """
    ours = APIS[key]
    version = min(ours.max_version, max_version)
    return version if version >= max(ours.min_version, min_version) else None
