"""Everything a client raises.

Owns one class per thing a caller can tell apart and react to. `_broker_error` has the table from
the wire's error codes to these classes.
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


class AuthenticationFailed(BrokerError):
    """The client has not proved who it is: no user, or a wrong name, password or mechanism."""


class NotAuthorized(BrokerError):
    """The client has no right to do this; an operator can give it one."""


class AuthorizationDisabled(BrokerError):
    """The broker has no authorization, so there are no entries of access control."""


class UserNotFound(BrokerError):
    """There is no such user, or it has no password for the mechanism."""


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
