"""One topic as a producer knows it: its partitions, and which of them a record goes to.

Owns the choice of partition: by key, by the user's partitioner, or one partition for a batch at a
time (KIP-480, sticky partitioning).
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace._backoff import Rng
from millrace._producer.columns import Columns
from millrace._producer.partition_queue import PartitionQueue
from millrace.errors import UnknownTopicOrPartition
from millrace.partitioner import Partitioner, by_key
from millrace_protocol.errors import ErrorCode


class TopicState:
    """A topic with at least one partition; `sticky` takes the records without a partition."""

    __slots__ = ("_partitioner", "_rng", "queues", "sticky", "topic")

    def __init__(
        self,
        topic: str,
        queues: list[PartitionQueue],
        *,
        rng: Rng,
        partitioner: Partitioner | None,
    ) -> None:
        """`partitioner` None: `by_key`."""
        self.topic = topic
        self.queues = queues
        self.sticky = queues[int(rng.random() * len(queues))]
        self._rng = rng
        self._partitioner = partitioner

    def queue_for(self, partition: int | None) -> PartitionQueue:
        """The queue of a partition, the sticky one for None. Raises `UnknownTopicOrPartition`."""
        if partition is None:
            return self.sticky
        if 0 <= partition < len(self.queues):
            return self.queues[partition]
        raise UnknownTopicOrPartition(
            f"partition {partition}: {self.topic} has partitions 0 to {len(self.queues) - 1}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    def choose(self, key: bytes | None) -> int | None:
        """The partition of a record that names none; None for the sticky one."""
        count = len(self.queues)
        if self._partitioner is None:
            # The records of a single partition keep their order, with keys or without.
            return 0 if count == 1 else by_key(self.topic, key, count)
        return self._partitioner(self.topic, key, count)

    def group(
        self, partitions: Sequence[int | None], keys: Sequence[bytes | None] | None
    ) -> dict[int | None, list[int]]:
        """The rows that go to each partition: the one they name, or the one chosen by their key."""
        chosen = {key: self.choose(key) for key in dict.fromkeys(keys or (None,))}
        groups: dict[int | None, list[int]] = {}
        for row, partition in enumerate(partitions):
            if partition is None:
                partition = chosen[keys[row] if keys is not None else None]
            if partition in groups:
                groups[partition].append(row)
            else:
                groups[partition] = [row]
        return groups

    def spreads(self, partition: int | None, columns: Columns) -> bool:
        """Whether records that name `partition`, None for no partition, may go to several."""
        if partition is not None:
            return False
        if self._partitioner is not None:
            return True
        return columns.keys is not None and len(self.queues) > 1

    def move_sticky(self) -> PartitionQueue:
        """Makes another partition the sticky one, where the topic has another."""
        count = len(self.queues)
        if count > 1:
            step = 1 + int(self._rng.random() * (count - 1))
            self.sticky = self.queues[(self.sticky.partition + step) % count]
        return self.sticky
