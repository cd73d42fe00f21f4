"""The exception for an error code of a broker.

Owns the table from the wire's error codes to classes. The broker's own sentence is kept as the
text. Source: wire_spec.md W-7.
"""

from __future__ import annotations

from millrace.errors import (
    AuthenticationFailed,
    AuthorizationDisabled,
    BrokerError,
    BrokerNotRegistered,
    BrokerStopping,
    BrokerTimedOut,
    CoordinatorUnavailable,
    CorruptMessage,
    DiskFull,
    ElectionNotNeeded,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    IllegalGeneration,
    InconsistentProtocol,
    InstanceFenced,
    InvalidConfig,
    InvalidGroup,
    InvalidPartitions,
    InvalidRecord,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidSessionTimeout,
    InvalidTimestamp,
    InvalidTopic,
    LeaderNotAvailable,
    MessageTooLarge,
    MetadataTooLarge,
    NoReassignmentInProgress,
    NotAuthorized,
    NotController,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OffsetsUnstable,
    OutOfOrderSequence,
    PolicyViolation,
    ProducerFenced,
    ReassignmentInProgress,
    RebalanceInProgress,
    StorageFailed,
    TopicAlreadyExists,
    TopicInUse,
    UnknownMember,
    UnknownProducerId,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedCompression,
    UnsupportedVersion,
    UserNotFound,
    VoterChangeRefused,
)
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode

ERROR_CLASSES: dict[ErrorCode, type[BrokerError]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: UnknownServerError,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.CORRUPT_MESSAGE: CorruptMessage,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartition,
    ErrorCode.LEADER_NOT_AVAILABLE: LeaderNotAvailable,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NotLeaderOrFollower,
    ErrorCode.REQUEST_TIMED_OUT: BrokerTimedOut,
    ErrorCode.REPLICA_NOT_AVAILABLE: NotLeaderOrFollower,
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLarge,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: MetadataTooLarge,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorUnavailable,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CoordinatorUnavailable,
    ErrorCode.NOT_COORDINATOR: CoordinatorUnavailable,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidTopic,
    ErrorCode.NOT_ENOUGH_REPLICAS: NotEnoughReplicas,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicas,
    ErrorCode.INVALID_REQUIRED_ACKS: InvalidRequest,
    ErrorCode.ILLEGAL_GENERATION: IllegalGeneration,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: InconsistentProtocol,
    ErrorCode.INVALID_GROUP_ID: InvalidGroup,
    ErrorCode.UNKNOWN_MEMBER_ID: UnknownMember,
    ErrorCode.INVALID_SESSION_TIMEOUT: InvalidSessionTimeout,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgress,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: MessageTooLarge,
    ErrorCode.INVALID_TIMESTAMP: InvalidTimestamp,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersion,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicAlreadyExists,
    ErrorCode.INVALID_PARTITIONS: InvalidPartitions,
    ErrorCode.INVALID_REPLICATION_FACTOR: InvalidReplicationFactor,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: InvalidReplicaAssignment,
    ErrorCode.INVALID_CONFIG: InvalidConfig,
    ErrorCode.NOT_CONTROLLER: NotController,
    ErrorCode.INVALID_REQUEST: InvalidRequest,
    ErrorCode.POLICY_VIOLATION: PolicyViolation,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequence,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFenced,
    ErrorCode.KAFKA_STORAGE_ERROR: StorageFailed,
    ErrorCode.UNKNOWN_PRODUCER_ID: UnknownProducerId,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmpty,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupNotFound,
    ErrorCode.FENCED_LEADER_EPOCH: NotLeaderOrFollower,
    ErrorCode.UNKNOWN_LEADER_EPOCH: NotLeaderOrFollower,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedCompression,
    ErrorCode.MEMBER_ID_REQUIRED: UnknownMember,
    ErrorCode.GROUP_MAX_SIZE_REACHED: GroupFull,
    ErrorCode.FENCED_INSTANCE_ID: InstanceFenced,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: TopicInUse,
    ErrorCode.REASSIGNMENT_IN_PROGRESS: ReassignmentInProgress,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: LeaderNotAvailable,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: LeaderNotAvailable,
    ErrorCode.ELECTION_NOT_NEEDED: ElectionNotNeeded,
    ErrorCode.BROKER_ID_NOT_REGISTERED: BrokerNotRegistered,
    ErrorCode.VOTER_CHANGE_REFUSED: VoterChangeRefused,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: NoReassignmentInProgress,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.SECURITY_DISABLED: AuthorizationDisabled,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationFailed,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationFailed,
    ErrorCode.RESOURCE_NOT_FOUND: UserNotFound,
    ErrorCode.INVALID_RECORD: InvalidRecord,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: OffsetsUnstable,
    ErrorCode.DISK_FULL: DiskFull,
    ErrorCode.BROKER_STOPPING: BrokerStopping,
    ErrorCode.UNKNOWN_API: UnsupportedVersion,
    ErrorCode.FRAME_TOO_LARGE: MessageTooLarge,
}
"""The class of each code. NONE has no entry, nor a code between brokers or of a later broker."""


def broker_error(code: int, sentence: str | None, *, about: str = "") -> BrokerError:
    """The exception for an error code in an answer.

    `sentence` is the broker's; without one the code's own is used. `about` names the topic or
    partition and is put in front.
    """
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
        sentence = sentence or f"The broker answers error {code}, which this client does not know"
    text = sentence or ERROR_TRAITS[known].message
    return ERROR_CLASSES.get(known, BrokerError)(f"{about}: {text}" if about else text, code=known)
