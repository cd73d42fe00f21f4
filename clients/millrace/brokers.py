"""Brokers: where they listen, their settings, their data directories, and their metadata quorum.

Owns the values that the admin client returns.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from millrace.errors import BrokerError
from millrace.records import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """Where one broker listens, and its rack, None if it has none."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers in service, as one of them sees it.

    `controller` is one that takes changes of topics, None while there is none.
    """

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A broker's replica of the metadata log; what is not known is None.

    `end_offset` is exclusive and counts what is durable. `fetched_ms` is the time since its last
    fetch from the leader, `caught_up_ms` the time since it last had the leader's whole log; both
    are 0 for the leader.
    """

    node_id: int
    directory_id: uuid.UUID
    is_voter: bool
    end_offset: int | None
    fetched_ms: int | None
    caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum. `leader` is the active controller, None while there is none.

    Every record before `high_watermark` is committed. Voters come first, each kind by its ids.
    """

    leader: int | None
    leader_epoch: int
    high_watermark: int | None
    replicas: tuple[QuorumReplica, ...]

    def lag(self, replica: QuorumReplica) -> int | None:
        """The records that a replica is behind the leader, None if that is not known."""
        ends = {each.node_id: each.end_offset for each in self.replicas}
        end = None if self.leader is None else ends.get(self.leader)
        if end is None or replica.end_offset is None:
            return None
        return max(0, end - replica.end_offset)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress. `replicas` has also those that are to be removed.

    It is done when the ISR has all replicas of `adding`, and `removing` are removed then.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def wanted(self) -> tuple[int, ...]:
        """The replicas behind the reassignment, the preferred leader first."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def missing(self) -> tuple[int, ...]:
        """The new replicas that are not in sync yet."""
        return tuple(each for each in self.adding if each not in self.isr)


@dataclass(frozen=True, slots=True)
class Retirement:
    """How far the retirement of a broker is: the replicas that it still has."""

    node_id: int
    replicas: int
    is_retired: bool


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A setting in force, as text; `doc` says what it means, with its unit.

    `source` of a topic's setting: topic, broker or default. `source` of a broker's: flag,
    environment, file, argument (of the program that embeds it) or default.
    """

    value: str
    is_default: bool
    source: str
    is_read_only: bool
    doc: str


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """What a partition takes on a broker's disk: the bytes of its batches, as they are stored.

    `offset_lag`: offsets that the broker's log is behind the high watermark. With an `error` both
    are -1.
    """

    size_bytes: int
    offset_lag: int
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A data directory of a broker; its space is -1 where it is not known, for which see `error`.

    `usable_bytes` is the space that is left to the broker.
    """

    node_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    partitions: Mapping[TopicPartition, PartitionSize]
    error: BrokerError | None = None
