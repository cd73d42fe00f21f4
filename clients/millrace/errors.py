"""Everything a client raises.

Owns one class per thing a caller can tell apart and react to, and the table from the wire's error
codes to those classes. The broker's own sentence is kept as the text. Source: wire_spec.md W-7.
"""

# Named for what happened, as the wire names its codes: `except OffsetOutOfRange` reads as meant.

from __future__ import annotations

from millrace_protocol.errors import ERROR_TRAITS, ErrorCode


class MillraceError(Exception):
    """Root of all errors of the clients.

    `code` is the wire's error code where a broker gave one, else None. `retriable`: the same call
    may succeed later.
    """

    code: ErrorCode | None = None
    retriable: bool = False


class ConfigError(MillraceError, ValueError):
    """A setting that cannot work; raised when the client is made, and names the setting."""


class SchemaError(ConfigError):
    """A schema with an unknown column, or with a type that the column cannot have."""


class Closed(MillraceError):
    """The client was closed, or was never started."""


class ClientFailed(MillraceError):
    """The client's background task died; `__cause__` says of what. Make a new client."""


class ConnectionFailed(MillraceError):
    """No connection to a broker could be made."""

    retriable = True


class ForeignPort(ConnectionFailed):
    """A port speaks another protocol than that of a broker."""


class ConnectionLost(MillraceError):
    """A connection died before the answer came; the request may have taken effect."""

    retriable = True


class RequestTimedOut(MillraceError):
    """No answer in time; the request may have taken effect."""

    code = ErrorCode.REQUEST_TIMED_OUT
    retriable = True


class ProtocolViolation(MillraceError):
    """What the broker sent is not the protocol; the connection was closed."""


class BufferFull(MillraceError):
    """The producer's buffer has no room for the record, or a connection none; it was not taken."""

    retriable = True


class DeliveryTimeout(MillraceError):
    """A record was not acked within `delivery_timeout_ms`; it may be in the log all the same."""


class DeliveryFailed(MillraceError):
    """Records were not delivered, and their sends not awaited; `failures` holds the first few."""

    def __init__(self, sentence: str, failures: tuple[MillraceError, ...]) -> None:
        super().__init__(sentence)
        self.failures = failures


class NoPartitions(MillraceError):
    """The consumer has nothing to read: give it topics, or call `assign`."""


class AssignorFailed(MillraceError):
    """This member leads its group, and its assignor makes no assignment that can be used."""


class NotAssigned(MillraceError):
    """A commit for a partition that the group has not assigned to this member, or no longer."""


class NoCommittedOffset(MillraceError):
    """The group has committed nothing for a partition, and `auto_offset_reset` is "error"."""


class InCallback(MillraceError):
    """A rebalance callback called a method that waits for the rebalance, or ends the consumer."""


class CallbackFailed(MillraceError):
    """A rebalance callback of the application raised (`__cause__`); the rebalance went on."""


class WrongLoop(MillraceError):
    """A client was called outside the event loop that it was started in."""


class DeserializationFailed(MillraceError):
    """A deserializer raised (`__cause__`) on the record at `offset` of `topic`, `partition`.

    The position stays at that record: seek past it to go on.
    """

    def __init__(self, sentence: str, *, topic: str, partition: int, offset: int) -> None:
        super().__init__(sentence)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class BrokerError(MillraceError):
    """An error code in an answer. Codes with a class of their own have a subclass."""

    def __init__(self, sentence: str, *, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        super().__init__(sentence)
        self.code = code
        self.retriable = ERROR_TRAITS[code].retriable

    @property
    def refresh_metadata(self) -> bool:
        """Whether the answer means that the client's picture of the cluster is old."""
        return self.code is not None and ERROR_TRAITS[self.code].refresh_metadata


class UnknownServerError(BrokerError):
    """The broker failed in a way it did not expect."""


class OffsetOutOfRange(BrokerError):
    """The position is not in the log any more, or not yet; the sentence names the valid range."""


class LogTruncated(OffsetOutOfRange):
    """Records that the consumer has read are not in the log any more: its leader was elected
    uncleanly. The logs part at `truncated_to`; the position, `offset`, is behind it.

    The position stays until a seek.
    """

    def __init__(self, sentence: str, *, offset: int, truncated_to: int) -> None:
        super().__init__(sentence, code=ErrorCode.OFFSET_OUT_OF_RANGE)
        self.offset = offset
        self.truncated_to = truncated_to


class CorruptMessage(BrokerError):
    """A record batch that fails its checks, as the broker received it or as the client did.

    From a consumer: records that have changed on the broker's disk, or on the way. The position
    stays before them, and the sentence says which offset to seek to.
    """


class UnknownTopicOrPartition(BrokerError):
    """There is no such topic or partition."""


class NotLeaderOrFollower(BrokerError):
    """Another broker leads the partition."""


class LeaderNotAvailable(BrokerError):
    """The partition has no leader now."""


class NotEnoughReplicas(BrokerError):
    """The partition has fewer in-sync replicas than `min.insync.replicas`."""


class NotController(BrokerError):
    """Another broker is the active controller."""


class MessageTooLarge(BrokerError):
    """A record or batch larger than allowed."""


class InvalidTopic(BrokerError):
    """Not a name a topic may have."""


class UnsupportedVersion(BrokerError):
    """Client and broker have no version of an api in common."""


class TopicAlreadyExists(BrokerError):
    """A topic of this name exists."""


class InvalidPartitions(BrokerError):
    """A number of partitions that is not allowed."""


class InvalidReplicationFactor(BrokerError):
    """A replication factor that is not allowed."""


class InvalidReplicaAssignment(BrokerError):
    """Replicas on brokers that are not registered, or two of them on one broker."""


class InvalidConfig(BrokerError):
    """A topic configuration key or value that is not allowed."""


class InvalidTimestamp(BrokerError):
    """A timestamp that is farther from the broker's clock than the topic allows."""


class InvalidRequest(BrokerError):
    """The broker says that the request breaks a rule of the protocol."""


class PolicyViolation(BrokerError):
    """The topic's `cleanup.policy` does not allow it."""


class OutOfOrderSequence(BrokerError):
    """The broker misses a batch before this one."""


class ProducerFenced(BrokerError):
    """Another producer writes with a newer epoch of this producer's id."""


class UnknownProducerId(BrokerError):
    """The broker has forgotten this producer; whether the record is in the log is not known."""


class StorageFailed(BrokerError):
    """The partition is offline after a disk fault."""


class UnsupportedCompression(BrokerError):
    """A codec that the broker does not take."""


class InvalidRecord(BrokerError):
    """A batch that holds what a client may not write."""


class DiskFull(BrokerError):
    """The broker's disk is full."""


class BrokerStopping(BrokerError):
    """The broker is shutting down."""


class BrokerTimedOut(BrokerError, RequestTimedOut):
    """The broker could not finish in time; the request may still take effect."""


class CoordinatorUnavailable(BrokerError):
    """The group's coordinator is elsewhere, or is not ready."""


class RebalanceInProgress(BrokerError):
    """The group is being assigned anew; the member must join again."""


class MemberFenced(BrokerError):
    """The group has gone on without this member."""


class IllegalGeneration(MemberFenced):
    """The group has gone on to another generation."""


class UnknownMember(MemberFenced):
    """The group does not know this member: it was silent too long, or was taken out."""


class InstanceFenced(MemberFenced):
    """Another member has taken over this one's instance id."""


class InconsistentProtocol(BrokerError):
    """The member has no assignor in common with the others."""


class InvalidGroup(BrokerError):
    """A group name that is not allowed."""


class InvalidSessionTimeout(BrokerError):
    """A session timeout outside what the broker allows."""


class MetadataTooLarge(BrokerError):
    """The metadata beside a committed offset is too long."""


class OffsetsUnstable(BrokerError):
    """A commit of the group is being written; what it will say is not known yet."""


class GroupNotFound(BrokerError):
    """There is no such group."""


class GroupNotEmpty(BrokerError):
    """The group has members."""


class GroupFull(BrokerError):
    """The group has as many members as the broker allows."""


class ReassignmentInProgress(BrokerError):
    """The partition is being reassigned to other replicas."""


class ElectionNotNeeded(BrokerError):
    """The partition has the leader that was asked for."""


class VoterChangeRefused(BrokerError):
    """The voters of the metadata quorum cannot be changed now."""


class BrokerNotRegistered(BrokerError):
    """The cluster has no broker of this id."""


class NoReassignmentInProgress(BrokerError):
    """The partition is not being reassigned."""


class TopicInUse(BrokerError):
    """A member of the group subscribes to the topic."""


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
    ErrorCode.INVALID_RECORD: InvalidRecord,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: OffsetsUnstable,
    ErrorCode.DISK_FULL: DiskFull,
    ErrorCode.BROKER_STOPPING: BrokerStopping,
    ErrorCode.UNKNOWN_API: UnsupportedVersion,
    ErrorCode.FRAME_TOO_LARGE: MessageTooLarge,
}
"""The class of each code. NONE has no entry, nor a code between brokers or of a later broker."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun, for a sentence.

    >>> counted(1, "record"), counted(2, "batch", "batches")
    ('1 record', '2 batches')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def again(error: MillraceError) -> MillraceError:
    """An equal exception without a traceback, and its causes likewise.

    An error is raised to each caller as a copy, because an exception that is raised twice collects
    both tracebacks. An error is kept in a field as a copy, because a traceback refers to frames,
    frames to the object that holds the field, and such a circle stays in memory.
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    cause = error.__cause__
    copy.__cause__ = again(cause) if isinstance(cause, MillraceError) else cause
    return copy


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
