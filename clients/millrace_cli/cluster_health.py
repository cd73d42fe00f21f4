"""The health of a cluster: its partitions, and those that are not as they should be.

Owns what counts as healthy. Asks no broker: the caller passes the topics and the brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.admin import PartitionDescription, TopicDescription


class TopicPartitionState(NamedTuple):
    """A partition of a topic."""

    topic: str
    state: PartitionDescription


@dataclass(slots=True)
class ClusterHealth:
    """Counts of all topics, those of the brokers included, and the partitions with a problem."""

    topics: int = 0
    partitions: int = 0
    leaderless: list[TopicPartitionState] = field(default_factory=list)
    """Partitions that cannot be written or read."""
    under_replicated: list[TopicPartitionState] = field(default_factory=list)
    """Partitions with a leader whose ISR lacks a replica."""
    has_controller: bool = True
    brokers_away: int = 0

    @property
    def is_healthy(self) -> bool:
        """Whether every broker answers, and every partition has its leader and all replicas."""
        return (
            self.has_controller
            and not self.brokers_away
            and not self.leaderless
            and not self.under_replicated
        )


def cluster_health(
    topics: Iterable[TopicDescription], *, controller: int | None, errors: Collection[str]
) -> ClusterHealth:
    """The health; `errors` are those of the brokers that did not answer."""
    health = ClusterHealth(has_controller=controller is not None, brokers_away=len(errors))
    for topic in topics:
        health.topics += 1
        for each in topic.partitions:
            health.partitions += 1
            if each.leader is None:
                health.leaderless.append(TopicPartitionState(topic.name, each))
            elif len(each.isr) < len(each.replicas):
                health.under_replicated.append(TopicPartitionState(topic.name, each))
    return health
