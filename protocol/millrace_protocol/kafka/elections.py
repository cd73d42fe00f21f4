"""ElectLeaders (43): another replica leads (KIP-460)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT8, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire

PREFERRED = 0
UNCLEAN = 1


@message
class TopicPartitions(Message):
    """Partitions of a topic."""

    topic: str = wire(STRING, "name of the topic")
    partitions: tuple[int, ...] = wire(array_of(INT32), "numbers of the partitions")


@message
class ElectLeadersRequest(KafkaRequest):
    """Elects leaders."""

    flexible_since: ClassVar[int | None] = 2

    election_type: int = wire(
        INT8, "0: the preferred leader, 1: any replica", since=1, default=PREFERRED
    )
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(
        array_of(TopicPartitions, nullable=True), "the partitions; null: all", default=None
    )
    timeout_ms: int = wire(INT32, "how long to wait for it", unit="ms", default=60_000)


@message
class PartitionResult(Message):
    """A partition with a new leader, or not."""

    partition_id: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")
    error_message: str | None = wire(NULLABLE_STRING, "the reason")


@message
class ReplicaElectionResult(Message):
    """A topic."""

    topic: str = wire(STRING, "name of the topic")
    partition_result: tuple[PartitionResult, ...] = wire(
        array_of(PartitionResult), "its partitions"
    )


@message
class ElectLeadersResponse(Message):
    """Each partition for itself."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    error_code: int = wire(INT16, "error of the request", since=1, default=0)
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire(
        array_of(ReplicaElectionResult), "the topics", default=()
    )
