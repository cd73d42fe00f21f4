"""Which replica a client reads: the leader, or a follower in its own rack (KIP-392)."""

from __future__ import annotations

from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import PartitionRegistration
from millrace_server.metadata.read_replica import read_replica
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.role import Role


class ReadReplicas:
    """The replicas of this broker, for clients that say where they are."""

    def __init__(self, partitions: PartitionTable, cache: MetadataCache, broker_id: int) -> None:
        self._partitions = partitions
        self._cache = cache
        self._broker_id = broker_id

    def get(self, topic: str, number: int) -> Partition:
        """The partition if this broker leads it or has it in sync. Raises `ApiError`."""
        partition = self._partitions.find(topic, number)
        if partition is not None and partition.leadership.role is Role.FOLLOWER:
            known = self._registration(topic, number)
            if known is not None and self._broker_id in known.isr:
                return partition
        return self._partitions.get(topic, number)

    def preferred(self, partition: Partition, rack: str) -> int:
        """The broker that a client is to read from next; -1: the leader, or as it does."""
        if partition.leadership.role is not Role.LEADER:
            return -1
        number = partition.number
        known = self._registration(partition.topic, number)
        if known is None:
            return -1
        found = read_replica(known, self._cache.image.brokers, rack, number=number)
        return -1 if found is None else found

    def _registration(self, topic: str, number: int) -> PartitionRegistration | None:
        known = self._cache.image.topics.get(topic)
        if known is None or not 0 <= number < known.partition_count:
            return None
        return known.partitions[number]
