"""What topics take on the disks of the brokers, all replicas together.

Owns the sum over brokers, and what it is where a broker does not answer, or the client has no right
to ask: unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millrace.admin import Admin, PartitionDescription, TopicDescription
from millrace.brokers import LogDirectory, PartitionSize
from millrace.errors import NotAuthorized
from millrace.records import TopicPartition
from millrace_cli.each_broker import BrokerAnswer, ask_each

Sizes = Mapping[TopicPartition, int | None]
"""Bytes by partition; None is unknown."""
ANSWER_TIMEOUT_S = 5.0
"""How long a broker may take to tell sizes; they are unknown then."""


class _Replica(NamedTuple):
    broker: int
    where: TopicPartition


async def partition_sizes(
    admin: Admin, topics: Sequence[TopicDescription]
) -> dict[TopicPartition, int | None]:
    """The bytes of every partition, from the brokers that have its replicas."""
    if not topics:
        return {}
    names = [topic.name for topic in topics]
    brokers = (await admin.describe_cluster()).brokers
    try:
        answers = await ask_each(
            brokers,
            lambda node_id: admin.describe_log_dirs(names, broker=node_id),
            timeout_s=ANSWER_TIMEOUT_S,
        )
    except NotAuthorized:
        answers = []
    found = _by_replica(answers)
    return {
        TopicPartition(topic.name, each.partition): _sum(found, topic.name, each)
        for topic in topics
        for each in topic.partitions
    }


def topic_size(topic: TopicDescription, sizes: Sizes) -> int | None:
    """The bytes of a topic; None if one of its partitions has no known size."""
    total = 0
    for each in topic.partitions:
        size = sizes.get(TopicPartition(topic.name, each.partition))
        if size is None:
            return None
        total += size
    return total


def _by_replica(
    answers: Sequence[BrokerAnswer[list[LogDirectory]]],
) -> dict[_Replica, PartitionSize]:
    return {
        _Replica(answer.broker.node_id, where): size
        for answer in answers
        for directory in answer.value or ()
        for where, size in directory.partitions.items()
    }


def _sum(
    found: Mapping[_Replica, PartitionSize], topic: str, partition: PartitionDescription
) -> int | None:
    total = 0
    for broker in partition.replicas:
        size = found.get(_Replica(broker, TopicPartition(topic, partition.partition)))
        if size is None or size.error is not None:
            return None
        total += size.size_bytes
    return total
