"""The image: what the cluster knows of itself after the records of the metadata log so far.

An image never changes: `delta.Delta` makes the next one of it and the records that follow, and
shares with it all that did not change. Owns what is known of brokers, topics, partitions,
access and quotas.
Refuses to know what may change, which is `controller`, and anything local to one broker, such as
directories and files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    UNASSIGNED_DIRECTORY,
    QuorumVoter,
    RegisteredListener,
)
from millrace_protocol.scram import ScramCredential, ScramMechanism
from millrace_server.api_error import ApiError, quoted
from millrace_server.metadata.acls import NO_ACLS, AclSet
from millrace_server.metadata.client_quotas import NO_QUOTA_SET, QuotaSet

EMPTY: Mapping[Any, Any] = MappingProxyType({})
"""Of all that is not there."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One broker of the cluster. `epoch` is the offset at which it registered.

    `listeners` are for clients, at least one; `broker_host` and `broker_port` for other brokers.
    """

    broker_id: int
    epoch: int
    incarnation_id: uuid.UUID
    listeners: tuple[RegisteredListener, ...]
    rack: str | None
    directory_ids: tuple[uuid.UUID, ...]
    is_fenced: bool
    broker_host: str = ""
    broker_port: int = 0
    in_controlled_shutdown: bool = False

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and be in an ISR (KIP-841)."""
        return not self.is_fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """One partition, with a directory id for each replica.

    A directory id is zero until the replica's broker has created the replica there. `adding` and
    `removing` are the replicas that a reassignment adds and removes (KIP-455).

    The replicas in `isr` and `elr` have every committed record (KIP-966). Those in
    `last_known_elr` had, and may have lost the newest ones since. In `loss_epoch`, -1 for never, a
    replica was elected that was in neither: a follower whose log is older may have records that
    were committed and are lost.

    Invariants: `isr`, `elr`, `last_known_elr`, `adding` and `removing` are parts of `replicas`;
    no broker is in two of the first three; the leader, if any, is in `isr`.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directory_ids: tuple[uuid.UUID, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    loss_epoch: int = -1

    def directory_of(self, broker_id: int) -> uuid.UUID:
        """The directory of a broker's replica; zero also if it has none."""
        for replica, directory_id in zip(self.replicas, self.directory_ids, strict=True):
            if replica == broker_id:
                return directory_id
        return UNASSIGNED_DIRECTORY

    def is_created(self, broker_id: int) -> bool:
        """Whether the broker has created its replica; False also if it has none."""
        return self.directory_of(broker_id) != UNASSIGNED_DIRECTORY


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `partitions[number]` is a partition, `configs` its own settings."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionRegistration, ...]
    configs: Mapping[str, str]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def replication_factor(self) -> int:
        """Replicas of each partition; the fewest if they differ, or while they are reassigned."""
        return min(
            (len(p.replicas) - max(len(p.adding), len(p.removing)) for p in self.partitions),
            default=0,
        )

    def partition(self, number: int) -> PartitionRegistration:
        """The partition of that number. Raises `ApiError`."""
        if not 0 <= number < len(self.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic {self.name!r} has no partition {number}; it has 0 to "
                f"{len(self.partitions) - 1}",
            )
        return self.partitions[number]

    def numbers_of(self, broker_id: int) -> Iterator[int]:
        """The partitions of which a broker has a replica."""
        for number, partition in enumerate(self.partitions):
            if broker_id in partition.replicas:
                yield number


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything the metadata log says before `end_offset`.

    Invariant: `topics` (by name) and `names` (topic id to name) hold the same topics; a topic id is
    in `names` or in `removed`, never in both.
    """

    end_offset: int = 0
    cluster_id: uuid.UUID | None = None
    feature_level: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=lambda: EMPTY)
    topics: Mapping[str, Topic] = field(default_factory=lambda: EMPTY)
    names: Mapping[uuid.UUID, str] = field(default_factory=lambda: EMPTY)
    removed: Mapping[uuid.UUID, None] = field(default_factory=lambda: EMPTY)
    next_producer_id: int = 0
    voters: tuple[QuorumVoter, ...] = ()
    """Those of the last record of voters; none for a broker without a quorum."""
    acls: AclSet = field(default_factory=lambda: NO_ACLS)
    users: Mapping[str, Mapping[ScramMechanism, ScramCredential]] = field(
        default_factory=lambda: EMPTY
    )
    """The credentials of each user, at least one, by its name."""
    scram_secret: bytes = field(default=b"", repr=False)
    """What the salts of names without a user are derived from; empty until there is a user."""
    quotas: QuotaSet = field(default_factory=lambda: NO_QUOTA_SET)

    @property
    def partition_count(self) -> int:
        """Partitions of all topics together."""
        return sum(topic.partition_count for topic in self.topics.values())

    def topic(self, name: str) -> Topic:
        """The topic of that name. Raises `ApiError`."""
        topic = self.topics.get(name)
        if topic is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no topic {quoted(name)}; create it first or check the name",
            )
        return topic

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with that id, None when there is none."""
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]
