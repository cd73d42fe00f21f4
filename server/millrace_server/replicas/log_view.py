"""The log of a partition as the cores of replication see it."""

from __future__ import annotations

from millrace_server.log.epochs import EpochTable
from millrace_server.partitions.partition import Partition


class PartitionLogView:
    """Implements `replication.log_view.LogView`."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._partition.log.start_offset

    @property
    def durable_start_offset(self) -> int:
        """A record before it does not come back after a crash."""
        return self._partition.log.durable_start_offset

    @property
    def acked_offset(self) -> int:
        """Everything before it is as durable as the topic demands."""
        return self._partition.stored_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._partition.log.end_offset

    @property
    def epochs(self) -> EpochTable:
        """Which leader wrote which part."""
        return self._partition.log.epochs

    @property
    def durable_epoch(self) -> int:
        """The latest epoch of the table that is on the disk."""
        return self._partition.log.durable_epoch
