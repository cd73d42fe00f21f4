"""Records of the metadata log: the only way in which a cluster's knowledge of itself changes.

Owns the fields of each record, its type id and its versions. Refuses to know what a change means:
`millrace_server.metadata.image` does. The value of every record in a segment or a snapshot of
`__cluster_metadata` is one of these; its key is null.

    +---------+---------+---------------------------+
    | type    | version | the fields of the version |
    | int16   | int16   |                           |
    +---------+---------+---------------------------+

A broker that meets a type or a version that it does not know must not start: it would miss a rule
of a newer broker. So a new field takes a new version, and a changed meaning takes a new type.

Every version is read for ever, because a directory that an older broker wrote must start. Records
are written in the newest version.

Sources: Kafka's metadata records (RegisterBrokerRecord.json, TopicRecord.json,
PartitionRecord.json, PartitionChangeRecord.json, VotersRecord.json), KIP-455, KIP-500, KIP-554,
KIP-630, KIP-853, KIP-858, KIP-966.
"""

from __future__ import annotations

import struct
import uuid

from millrace_protocol.codec import Buffer, decode_leading, encode
from millrace_protocol.errors import WireError
from millrace_protocol.primitives import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID,
)
from millrace_protocol.schema import Message, array_of, message, wire

UNASSIGNED_DIRECTORY = uuid.UUID(int=0)
"""The directory of a replica whose broker has not created it."""
NO_LEADER = -1
LEADER_UNCHANGED = -2
PREFIX = struct.Struct(">hh")
"""Type and version, before the fields."""


@message
class MetadataRecord(Message):
    """Base of every record of the metadata log."""


@message
class ClusterRecord(MetadataRecord):
    """The cluster's identity, and the version of the rules that its brokers follow."""

    cluster_id: uuid.UUID = wire(UUID, "identity of the cluster, made with its first record")
    feature_level: int = wire(INT16, "the rules in force; a broker that knows fewer must not start")


@message
class RegisteredListener(Message):
    """Where clients find a broker that has registered (KIP-103)."""

    name: str = wire(STRING, "name of the listener")
    host: str = wire(STRING, "host that clients connect to")
    port: int = wire(UINT16, "port that clients connect to")
    has_tls: bool = wire(BOOLEAN, "whether it speaks TLS")


@message
class RegisterBrokerRecord(MetadataRecord):
    """A broker has started; it is fenced until a `BrokerRegistrationChangeRecord` unfences it."""

    broker_id: int = wire(INT32, "the broker's id in the cluster")
    broker_epoch: int = wire(INT64, "offset of this registration; a later one replaces it")
    incarnation_id: uuid.UUID = wire(UUID, "new with every start of the broker")
    host: str = wire(STRING, "host of its first listener for clients")
    port: int = wire(UINT16, "port of its first listener for clients")
    rack: str | None = wire(NULLABLE_STRING, "where the broker is; null for unknown")
    directory_ids: tuple[uuid.UUID, ...] = wire(
        array_of(UUID), "identities of its data directories"
    )
    broker_host: str = wire(
        STRING, "host that other brokers connect to; empty for none", since=1, default=""
    )
    broker_port: int = wire(
        UINT16, "port that other brokers connect to; 0 for none", since=1, default=0
    )
    listeners: tuple[RegisteredListener, ...] = wire(
        array_of(RegisteredListener), "all its listeners for clients", since=2, default=()
    )


@message
class BrokerRegistrationChangeRecord(MetadataRecord):
    """A registered broker is fenced or unfenced, or begins a controlled shutdown."""

    broker_id: int = wire(INT32, "the broker's id in the cluster")
    broker_epoch: int = wire(INT64, "offset of the registration that is changed")
    is_fenced: bool = wire(BOOLEAN, "whether the broker may lead no partition")
    in_controlled_shutdown: bool = wire(
        BOOLEAN, "whether its leaders have moved away so that it can stop", since=1, default=False
    )


@message
class TopicRecord(MetadataRecord):
    """A topic is created; its partitions and settings follow in the same batch."""

    name: str = wire(STRING, "topic name (W-6.5)")
    topic_id: uuid.UUID = wire(UUID, "identity of the topic; never used again")


@message
class PartitionRecord(MetadataRecord):
    """A partition of a topic is created, or, in a snapshot, all there is to know of it."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number; those of a topic are dense from 0")
    replicas: tuple[int, ...] = wire(array_of(INT32), "ids of the brokers with a copy, best first")
    isr: tuple[int, ...] = wire(array_of(INT32), "ids of the brokers whose copies are in sync")
    leader: int = wire(INT32, "id of the leader; -1 for none")
    leader_epoch: int = wire(INT32, "how often the leader has changed")
    partition_epoch: int = wire(INT32, "how often this partition has changed")
    directory_ids: tuple[uuid.UUID, ...] = wire(
        array_of(UUID), "data directory of each replica; zero until its broker has created it"
    )
    elr: tuple[int, ...] = wire(
        array_of(INT32),
        "brokers outside the ISR with every committed record",
        since=1,
        default=(),
    )
    last_known_elr: tuple[int, ...] = wire(
        array_of(INT32),
        "brokers that left ISR or ELR and may miss records, best first",
        since=1,
        default=(),
    )
    adding_replicas: tuple[int, ...] = wire(
        array_of(INT32),
        "replicas that a reassignment adds",
        since=1,
        default=(),
    )
    removing_replicas: tuple[int, ...] = wire(
        array_of(INT32),
        "replicas that a reassignment removes",
        since=1,
        default=(),
    )
    loss_epoch: int = wire(
        INT32,
        "latest leader epoch whose leader may have lacked committed records; -1 for none",
        since=2,
        default=-1,
    )


@message
class PartitionChangeRecord(MetadataRecord):
    """A partition changes; the partition epoch counts it."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number")
    replicas: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True), "new replicas; null for no change"
    )
    isr: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True), "new in-sync replicas; null for no change"
    )
    leader: int = wire(INT32, "new leader, with the next leader epoch; -1 for none, -2 for as is")
    directory_ids: tuple[uuid.UUID, ...] | None = wire(
        array_of(UUID, nullable=True), "new data directories; null for no change"
    )
    elr: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True),
        "new ELR; null for no change",
        since=1,
        default=None,
    )
    last_known_elr: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True),
        "new last known ELR; null for no change",
        since=1,
        default=None,
    )
    adding_replicas: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True),
        "new replicas to add; null for no change",
        since=1,
        default=None,
    )
    removing_replicas: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True),
        "new replicas to remove; null for no change",
        since=1,
        default=None,
    )


@message
class ConfigRecord(MetadataRecord):
    """One setting of a topic changes."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    name: str = wire(STRING, "configuration key")
    value: str | None = wire(NULLABLE_STRING, "its value as text; null for the broker's default")


@message
class RemoveTopicRecord(MetadataRecord):
    """A topic is deleted with its partitions and settings."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")


@message
class ProducerIdsRecord(MetadataRecord):
    """A block of producer ids is given to a broker: those below `next_producer_id`."""

    broker_id: int = wire(INT32, "the broker that hands the ids out")
    broker_epoch: int = wire(INT64, "offset of its registration")
    next_producer_id: int = wire(INT64, "first id behind the block")


@message
class SnapshotHeaderRecord(MetadataRecord):
    """The first record of a snapshot (KIP-630)."""

    end_offset: int = wire(INT64, "the snapshot holds what the log says before this offset")


@message
class RemovedTopicsRecord(MetadataRecord):
    """Only in a snapshot: topics that were deleted, whose directories may still be found."""

    topic_ids: tuple[uuid.UUID, ...] = wire(array_of(UUID), "the latest ones, the oldest first")


@message
class SnapshotFooterRecord(MetadataRecord):
    """The last record of a snapshot: without it the snapshot is torn."""

    record_count: int = wire(INT64, "records before this one, the header included")


@message
class UnregisterBrokerRecord(MetadataRecord):
    """A broker is no longer part of the cluster; it may register anew."""

    broker_id: int = wire(INT32, "the broker's id in the cluster")
    broker_epoch: int = wire(INT64, "offset of the registration that ends")


@message
class QuorumVoter(Message):
    """A voter: a broker with its data directory, and where the other voters reach it."""

    broker_id: int = wire(INT32, "the voter's broker id")
    directory_id: uuid.UUID = wire(UUID, "identity of the directory with its metadata log")
    host: str = wire(STRING, "host that other brokers connect to")
    port: int = wire(UINT16, "port that other brokers connect to")


@message
class VotersRecord(MetadataRecord):
    """The voters of the metadata log, from this record on, committed or not (KIP-853)."""

    voters: tuple[QuorumVoter, ...] = wire(array_of(QuorumVoter), "all of them, by rising id")


@message
class _AccessControlEntryFields(MetadataRecord):
    """The fields of an entry of access control."""

    resource_type: int = wire(INT8, "type of the resource (W-9.5)")
    pattern_type: int = wire(INT8, "literal or prefixed (W-9.5)")
    name: str = wire(STRING, "name of the resource, or its beginning")
    principal: str = wire(STRING, "the principal that it is about")
    host: str = wire(STRING, "the address of the client that it is about; * for each")
    operation: int = wire(INT8, "what is done with the resource (W-9.5)")
    permission: int = wire(INT8, "allowed or denied (W-9.5)")


@message
class AccessControlEntryRecord(_AccessControlEntryFields):
    """An entry of access control is added."""


@message
class RemoveAccessControlEntryRecord(_AccessControlEntryFields):
    """The entry with exactly these fields is removed."""

    principal: str = wire(STRING, "the principal that it was about")
    host: str = wire(STRING, "the address of the client that it was about")


@message
class LeaderChangeRecord(MetadataRecord):
    """The first record of a leader of the metadata log in its epoch; changes no metadata."""

    leader_id: int = wire(INT32, "the leader's broker id")
    voter_ids: tuple[int, ...] = wire(array_of(INT32), "broker ids of the voters in force")


@message
class ScramCredentialRecord(MetadataRecord):
    """A user has a password (KIP-554). The record lets a broker check it, and does not tell it."""

    user: str = wire(STRING, "name of the user")
    mechanism: int = wire(INT8, "1: SCRAM-SHA-256, 2: SCRAM-SHA-512")
    salt: bytes = wire(BYTES, "the salt of the password")
    stored_key: bytes = wire(BYTES, "StoredKey of RFC 5802")
    server_key: bytes = wire(BYTES, "ServerKey of RFC 5802")
    iterations: int = wire(INT32, "how often the password is hashed")


@message
class RemoveScramCredentialRecord(MetadataRecord):
    """A user has no password any more for a mechanism."""

    user: str = wire(STRING, "name of the user")
    mechanism: int = wire(INT8, "1: SCRAM-SHA-256, 2: SCRAM-SHA-512")


@message
class ScramSecretRecord(MetadataRecord):
    """What brokers derive the salts from that they name for users that there are not."""

    secret: bytes = wire(BYTES, "random bytes, made with the first user")


@message
class QuotaEntityName(Message):
    """One part of an entity with quotas."""

    entity_type: str = wire(STRING, "`user`, `client-id` or `ip`")
    entity_name: str | None = wire(NULLABLE_STRING, "its name; null: each that has no quota")


@message
class ClientQuotaRecord(MetadataRecord):
    """A quota of clients is set or removed (KIP-546)."""

    entity: tuple[QuotaEntityName, ...] = wire(array_of(QuotaEntityName), "whose it is")
    key: str = wire(STRING, "name of the quota")
    value: float = wire(FLOAT64, "what it allows")
    is_removed: bool = wire(BOOLEAN, "whether there is none any more")


RECORD_TYPES: dict[int, tuple[type[MetadataRecord], int]] = {
    1: (ClusterRecord, 0),
    2: (RegisterBrokerRecord, 2),
    3: (BrokerRegistrationChangeRecord, 1),
    4: (TopicRecord, 0),
    5: (PartitionRecord, 2),
    6: (PartitionChangeRecord, 1),
    7: (ConfigRecord, 0),
    8: (RemoveTopicRecord, 0),
    9: (ProducerIdsRecord, 0),
    10: (SnapshotHeaderRecord, 0),
    11: (RemovedTopicsRecord, 0),
    12: (SnapshotFooterRecord, 0),
    13: (UnregisterBrokerRecord, 0),
    14: (VotersRecord, 0),
    15: (LeaderChangeRecord, 0),
    16: (AccessControlEntryRecord, 0),
    17: (RemoveAccessControlEntryRecord, 0),
    18: (ScramCredentialRecord, 0),
    19: (RemoveScramCredentialRecord, 0),
    21: (ScramSecretRecord, 0),
    22: (ClientQuotaRecord, 0),
}
"""Type id to the record and its newest version."""
_TYPE_IDS = {cls: (type_id, version) for type_id, (cls, version) in RECORD_TYPES.items()}


class NewerMetadata(WireError):
    """A record's type or version is not known here: a newer broker wrote it."""


def record_class(type_id: int, version: int) -> type[MetadataRecord]:
    """The record of a type id. Raises `NewerMetadata` if it or the version is not known."""
    known = RECORD_TYPES.get(type_id)
    if known is None:
        raise NewerMetadata(
            f"metadata record type {type_id} is not known; the newest known is {max(RECORD_TYPES)}",
            position=0,
        )
    cls, newest = known
    if not 0 <= version <= newest:
        raise NewerMetadata(
            f"version {version} of {cls.__name__} is not known; the newest known is {newest}",
            position=2,
        )
    return cls


def encode_metadata_record(record: MetadataRecord) -> bytes:
    """The value of a record. Raises `ValueError` for a field that its type cannot carry.

    >>> encode_metadata_record(RemoveTopicRecord(uuid.UUID(int=1))).hex()
    '0008000000000000000000000000000000000001'
    """
    type_id, version = _TYPE_IDS[type(record)]
    return PREFIX.pack(type_id, version) + encode(record, version)


def decode_metadata_record(value: Buffer) -> MetadataRecord:
    """The record in a value. Raises `NewerMetadata`, and `WireError` when it is malformed."""
    if len(value) < PREFIX.size:
        raise WireError(
            f"a metadata record begins with {PREFIX.size} bytes of type and version, and there "
            f"are {len(value)}",
            position=0,
        )
    type_id, version = PREFIX.unpack_from(value)
    record, end = decode_leading(
        record_class(type_id, version), value, version, position=PREFIX.size
    )
    if end != len(value):
        raise WireError(
            f"extra bytes after the {type(record).__name__}: {len(value) - end}", position=end
        )
    return record
