"""Error codes of the wire, and the errors a decoder raises.

Owns the table of codes (wire_spec.md W-7): number, name, how a client reacts, and the message of
errors without a more exact one. A code with the meaning of one of Apache Kafka's has Kafka's
number and name. Other codes start at 1000.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ErrorCode(IntEnum):
    """The result of a request, or of one of its topics or partitions (W-7.1)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_CLUSTER_ID = 104
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    DISK_FULL = 1000
    BROKER_STOPPING = 1001
    UNKNOWN_API = 1002
    FRAME_TOO_LARGE = 1003
    VOTER_CHANGE_REFUSED = 1004


@dataclass(frozen=True, slots=True)
class ErrorTraits:
    """How a client reacts to one code.

    `retriable`: the same request may succeed later. `refresh_metadata`: ask for metadata before
    retrying. `fenced`: another client has this one's identity; retrying cannot help.
    """

    message: str
    retriable: bool = False
    refresh_metadata: bool = False
    fenced: bool = False


_T = ErrorTraits
ERROR_TRAITS: dict[ErrorCode, ErrorTraits] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: _T("The broker failed in a way it did not expect; see its log"),
    ErrorCode.NONE: _T("No error"),
    ErrorCode.OFFSET_OUT_OF_RANGE: _T(
        "The offset is outside the log; ask ListOffsets for the valid range"
    ),
    ErrorCode.CORRUPT_MESSAGE: _T(
        "The CRC-32C of the record batch is wrong; send the batch again", retriable=True
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _T(
        "The broker has no such topic or partition; create it or check the name",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: _T(
        "The partition has no leader now; wait for the election and refresh the metadata",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _T(
        "Another broker leads this partition; refresh the metadata",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.REQUEST_TIMED_OUT: _T(
        "The request was not finished in time; it may still take effect", retriable=True
    ),
    ErrorCode.REPLICA_NOT_AVAILABLE: _T(
        "The broker holds no replica of this partition yet; refresh the metadata",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.MESSAGE_TOO_LARGE: _T(
        "The record batch is larger than the topic's max.message.bytes; send less or raise it"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: _T(
        "The metadata beside a committed offset is longer than offset.metadata.max.bytes"
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _T(
        "The coordinator of this group is reading its log; retry", retriable=True
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _T(
        "The group has no coordinator; ask FindCoordinator again", retriable=True
    ),
    ErrorCode.NOT_COORDINATOR: _T(
        "Another broker coordinates this group; ask FindCoordinator", retriable=True
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: _T(
        "A topic name is 1 to 249 of A-Z a-z 0-9 . _ - and neither . nor .."
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: _T(
        "The partition has fewer in-sync replicas than min.insync.replicas; nothing was appended",
        retriable=True,
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _T(
        "The batch is appended, and the in-sync replicas became fewer than min.insync.replicas",
        retriable=True,
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: _T("acks is 0, 1 or -1 (all)"),
    ErrorCode.ILLEGAL_GENERATION: _T("The group has another generation; join again"),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: _T(
        "The member shares no protocol or protocol type with the other members of the group"
    ),
    ErrorCode.INVALID_GROUP_ID: _T("A group name is 1 to 249 characters"),
    ErrorCode.UNKNOWN_MEMBER_ID: _T("The group has no such member; join again without a member id"),
    ErrorCode.INVALID_SESSION_TIMEOUT: _T("The session timeout is outside what the broker allows"),
    ErrorCode.REBALANCE_IN_PROGRESS: _T("The group is rebalancing; join again"),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: _T(
        "The commit does not fit; commit fewer partitions at a time"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _T(
        "The client has no right to do this with the topic; ask the operator for one"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _T(
        "The client has no right to do this with the group; ask the operator for one"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _T(
        "The client has no right to do this with the cluster; ask the operator for one"
    ),
    ErrorCode.INVALID_TIMESTAMP: _T(
        "A timestamp is farther from the broker's clock than the topic allows"
    ),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: _T(
        "The listener does not have this SASL mechanism; use one that the message names"
    ),
    ErrorCode.ILLEGAL_SASL_STATE: _T(
        "The request does not fit the state of the connection's authentication"
    ),
    ErrorCode.UNSUPPORTED_VERSION: _T(
        "The broker does not have this version of the api; use one that the error response names"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: _T("A topic of this name exists; choose another name"),
    ErrorCode.INVALID_PARTITIONS: _T(
        "The number of partitions is not allowed; it is at least 1 and can only grow"
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: _T(
        "The replication factor is at least 1 and at most the number of brokers"
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: _T(
        "A replica assignment names each broker once, and only brokers that are registered"
    ),
    ErrorCode.INVALID_CONFIG: _T("A configuration key or value is not valid"),
    ErrorCode.NOT_CONTROLLER: _T(
        "Another broker is the active controller; refresh the metadata",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.INVALID_REQUEST: _T("The request breaks a rule of the protocol"),
    ErrorCode.POLICY_VIOLATION: _T(
        "The topic's cleanup.policy does not allow it; change the policy first"
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: _T(
        "A batch of this producer is missing before this one; resend from the last acked batch"
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: _T(
        "A newer holder of this producer id writes; stop, and report it",
        fenced=True,
    ),
    ErrorCode.SECURITY_DISABLED: _T(
        "The broker has no authorization; its setting `authorization` switches it on"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: _T(
        "The partition is offline after a disk fault; see the broker's log"
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: _T(
        "The client has not authenticated, or its name or its password is wrong"
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: _T(
        "The partition does not know this producer id; ask InitProducerId for the next epoch"
    ),
    ErrorCode.NON_EMPTY_GROUP: _T("The group has members; stop them first"),
    ErrorCode.GROUP_ID_NOT_FOUND: _T("No group has this name"),
    ErrorCode.FENCED_LEADER_EPOCH: _T(
        "The client's leader epoch is older than the broker's; refresh the metadata",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.UNKNOWN_LEADER_EPOCH: _T(
        "The client's leader epoch is newer than the broker's, which lags behind, or the topic "
        "was created anew; refresh the metadata and retry",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: _T(
        "The codec is none, gzip, snappy, lz4 or zstd (attributes bits 0-2 are 0 to 4)"
    ),
    ErrorCode.STALE_BROKER_EPOCH: _T(
        "The broker epoch is not that of the registration in force; register again, or stop"
    ),
    ErrorCode.MEMBER_ID_REQUIRED: _T("Join again with the member id of the response"),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: _T(
        "The preferred leader is not in sync or not in service; start it and wait",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: _T("The group has as many members as group.max.size allows"),
    ErrorCode.FENCED_INSTANCE_ID: _T(
        "Another member has taken over this instance id; give each instance its own", fenced=True
    ),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: _T(
        "No replica that has all records is in service; start one of them",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.ELECTION_NOT_NEEDED: _T(
        "The partition already has the leader that was asked for", refresh_metadata=True
    ),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: _T(
        "The partition is being reassigned; wait until that is done, cancel it, or replace it"
    ),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: _T("The partition's replicas are not being reassigned"),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _T(
        "A member of the group subscribes to this topic; its offsets are in use"
    ),
    ErrorCode.INVALID_RECORD: _T("The record batch has content that clients may not write"),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _T(
        "A commit for this partition is being written; ask again", retriable=True
    ),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _T(
        "The client changes more partitions a second than its quota allows; wait and ask again",
        retriable=True,
    ),
    ErrorCode.RESOURCE_NOT_FOUND: _T("There is no such thing; list what there is"),
    ErrorCode.DUPLICATE_RESOURCE: _T("The request names something twice; name each once"),
    ErrorCode.UNACCEPTABLE_CREDENTIAL: _T(
        "The name, the salt or the number of iterations of a user is not allowed"
    ),
    ErrorCode.INCONSISTENT_VOTER_SET: _T(
        "The receiver is not a voter by this id and directory; look at the configured quorum"
    ),
    ErrorCode.INVALID_UPDATE_VERSION: _T(
        "The partition has changed meanwhile; repeat the request with its new partition epoch"
    ),
    ErrorCode.SNAPSHOT_NOT_FOUND: _T(
        "The broker no longer has this snapshot; fetch the log to learn of a newer one"
    ),
    ErrorCode.POSITION_OUT_OF_RANGE: _T("The position is behind the end of the snapshot"),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: _T(
        "Another process that is alive has this broker id; give each broker its own"
    ),
    ErrorCode.BROKER_ID_NOT_REGISTERED: _T(
        "No broker is registered under this id; check the id, or start the broker"
    ),
    ErrorCode.INCONSISTENT_CLUSTER_ID: _T(
        "The brokers belong to different clusters; check the addresses and the data directory"
    ),
    ErrorCode.INELIGIBLE_REPLICA: _T(
        "A replica of the new ISR is fenced, is shutting down, or has restarted"
    ),
    ErrorCode.NEW_LEADER_ELECTED: _T(
        "The change made another broker the leader; refresh the metadata", refresh_metadata=True
    ),
    ErrorCode.DUPLICATE_VOTER: _T("The broker votes in the metadata quorum already"),
    ErrorCode.VOTER_NOT_FOUND: _T(
        "The broker does not vote in the metadata quorum; DescribeQuorum lists the voters"
    ),
    ErrorCode.DISK_FULL: _T(
        "The broker's disk is full: appends are refused, reads go on; free space and retry",
        retriable=True,
        refresh_metadata=True,
    ),
    ErrorCode.BROKER_STOPPING: _T(
        "The broker is shutting down; connect again", retriable=True, refresh_metadata=True
    ),
    ErrorCode.UNKNOWN_API: _T("No api has this key; Hello lists the apis"),
    ErrorCode.FRAME_TOO_LARGE: _T(
        "The frame is longer than the broker accepts; Hello names the limit"
    ),
    ErrorCode.VOTER_CHANGE_REFUSED: _T(
        "The voters of the metadata quorum cannot be changed now; the message says why",
        retriable=True,
    ),
}


class WireError(Exception):
    """The bytes break the protocol at `position` (bytes from the start of the frame or body).

    `field` is the path of the field, empty outside a body; `reason` is field and problem.
    """

    def __init__(self, problem: str, *, position: int, field: str = "") -> None:
        self.reason = f"{field}: {problem}" if field else problem
        super().__init__(f"{self.reason}, at byte {position}")
        self.field = field
        self.position = position
