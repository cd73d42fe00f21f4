"""What a client knows of the cluster: brokers, and the leaders of the partitions it asked for.

Owns what a metadata response changes, and what it does not: a broker that lags behind the others
takes no client back. Pure; the requests are `cluster`'s.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from millrace._broker_error import broker_error
from millrace.errors import BrokerError, UnknownTopicOrPartition
from millrace_protocol.messages.metadata import MetadataResponse, TopicMetadata
from millrace_wire.connection import Address


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that leads a partition; `node_id` is -1 while there is none.

    `replica_id` is a broker that holds the partition, -1 where none is known.
    """

    node_id: int
    epoch: int
    replica_id: int = -1


class MetadataCache:
    """`leaders[topic][partition]` and the addresses of the brokers, as far as known.

    A topic that is not in `leaders` was never asked for, or its last answer was an error, which
    `topic_errors` then holds. `controller_id` is -1 while there is no controller.
    """

    def __init__(self) -> None:
        self.leaders: dict[str, dict[int, Leader]] = {}
        self.topic_errors: dict[str, BrokerError] = {}
        self.brokers: dict[int, Address] = {}
        self.controller_id = -1
        self._topic_ids: dict[str, uuid.UUID] = {}

    def leader(self, topic: str, partition: int) -> Leader | None:
        """The leader as far as known, or None: ask for a refresh then."""
        leader = self.leaders.get(topic, {}).get(partition)
        return leader if leader is not None and leader.node_id >= 0 else None

    def leader_or_replica(self, topic: str, partition: int) -> Leader | None:
        """The leader, or while there is none a broker that holds the partition.

        That broker refuses requests for the partition and says why, which no metadata does.
        """
        leader = self.leaders.get(topic, {}).get(partition)
        if leader is None or leader.node_id >= 0:
            return leader
        return Leader(leader.replica_id, -1) if leader.replica_id >= 0 else None

    def partition_count(self, topic: str) -> int | None:
        """How many partitions the topic has, as far as known."""
        leaders = self.leaders.get(topic)
        return None if leaders is None else len(leaders)

    def partition_counts(self) -> dict[str, int]:
        """Partitions of each topic as far as known; 0 for those that the cluster denies."""
        counts = {topic: len(leaders) for topic, leaders in self.leaders.items()}
        for topic, error in self.topic_errors.items():
            if isinstance(error, UnknownTopicOrPartition):
                counts[topic] = 0
        return counts

    def learn(self, response: MetadataResponse) -> None:
        """Takes over what a broker has answered."""
        self.controller_id = response.controller_id
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            if topic.error_code:
                self.leaders.pop(topic.name, None)
                self._topic_ids.pop(topic.name, None)
                self.topic_errors[topic.name] = broker_error(
                    topic.error_code, topic.error_message, about=topic.name
                )
            else:
                self.topic_errors.pop(topic.name, None)
                self.leaders[topic.name] = self._leaders_of(topic)

    def _leaders_of(self, topic: TopicMetadata) -> dict[int, Leader]:
        # The epochs of a topic that was deleted say nothing of a new one with its name.
        is_known = self._topic_ids.get(topic.name) == topic.topic_id
        known = self.leaders.get(topic.name, {}) if is_known else {}
        self._topic_ids[topic.name] = topic.topic_id
        leaders: dict[int, Leader] = {}
        for partition in topic.partitions:
            replica_id = partition.replicas[0] if partition.replicas else -1
            leader = Leader(partition.leader_id, partition.leader_epoch, replica_id)
            before = known.get(partition.partition)
            # A broker that lags behind must not take us back to an older leader.
            if before is not None and before.epoch > leader.epoch >= 0:
                leader = before
            leaders[partition.partition] = leader
        return leaders
