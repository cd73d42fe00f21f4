"""OffsetForLeaderEpoch (23): where the records of a leader epoch end (KIP-320)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT16, INT32, INT64, STRING
from millrace_protocol.schema import Message, array_of, message, wire

CONSUMER = -2


@message
class OffsetForLeaderPartition(Message):
    """A partition and an epoch of it."""

    partition: int = wire(INT32, "number of the partition")
    current_leader_epoch: int = wire(INT32, "epoch that the client knows; -1: none")
    leader_epoch: int = wire(INT32, "the epoch in question")


@message
class OffsetForLeaderTopic(Message):
    """A topic."""

    topic: str = wire(STRING, "name of the topic")
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(
        array_of(OffsetForLeaderPartition), "its partitions"
    )


@message
class OffsetForLeaderEpochRequest(KafkaRequest):
    """Asks for ends of epochs."""

    flexible_since: ClassVar[int | None] = 4

    replica_id: int = wire(INT32, "id of a follower; -2: a client", since=3, default=CONSUMER)
    topics: tuple[OffsetForLeaderTopic, ...] = wire(
        array_of(OffsetForLeaderTopic), "the topics", default=()
    )


@message
class EpochEndOffset(Message):
    """The newest epoch that is not above the one in question, and where it ends."""

    error_code: int = wire(INT16, "error of the partition")
    partition: int = wire(INT32, "number of the partition")
    leader_epoch: int = wire(INT32, "the epoch; -1: none", default=-1)
    end_offset: int = wire(INT64, "the offset behind its last record; -1: unknown", default=-1)


@message
class OffsetForLeaderTopicResult(Message):
    """A topic."""

    topic: str = wire(STRING, "name of the topic")
    partitions: tuple[EpochEndOffset, ...] = wire(array_of(EpochEndOffset), "its partitions")


@message
class OffsetForLeaderEpochResponse(Message):
    """Each partition for itself."""

    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(
        array_of(OffsetForLeaderTopicResult), "the topics", default=()
    )
