"""The metadata quorum as an operator looks at it: its leader, and how far each replica has come."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from millrace_server.controller.metadata_log import METADATA_TOPIC
from millrace_server.metadata.cache import MetadataCache
from millrace_server.partitions.partition_table import PartitionTable


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica of the metadata log. Times are 0 for the leader, -1 if unknown."""

    broker_id: int
    directory_id: uuid.UUID
    is_voter: bool
    end_offset: int
    fetched_ms: int
    caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The quorum in the epoch of its leader."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: Sequence[ReplicaState]


class QuorumService:
    """Describes the quorum of a broker that is a cluster of its own: it leads and votes alone."""

    def __init__(self, partitions: PartitionTable, cache: MetadataCache, *, broker_id: int) -> None:
        self._partitions = partitions
        self._cache = cache
        self._broker_id = broker_id

    def describe(self) -> QuorumState:
        """The quorum now. Raises `ApiError` when the metadata log is offline."""
        partition = self._partitions.get(METADATA_TOPIC, 0)
        directory_id = self._cache.image.brokers[self._broker_id].directory_ids[0]
        replica = ReplicaState(
            self._broker_id, directory_id, True, partition.log.durable_offset, 0, 0
        )
        return QuorumState(
            self._broker_id, partition.leader_epoch, partition.high_watermark, (replica,)
        )
