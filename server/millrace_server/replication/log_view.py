"""What the cores ask of the log of a partition; the shell answers from its `PartitionLog`."""

from __future__ import annotations

from typing import Protocol

from millrace_server.log.epochs import NO_EPOCH, EpochEnd, EpochTable


class LogView(Protocol):
    """The log of one replica, as it is at the moment: `start <= acked <= end`."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def durable_start_offset(self) -> int:
        """A record before it does not come back after a crash; at most `start_offset`."""

    @property
    def acked_offset(self) -> int:
        """Everything before it is as durable as the topic demands: on the disk with
        `durability=fsync`, written with `os`."""

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""

    @property
    def epochs(self) -> EpochTable:
        """Which leader wrote which part; without epochs that end at or before the log's start."""

    @property
    def durable_epoch(self) -> int:
        """The latest epoch of the table that is on the disk, `NO_EPOCH` if none is."""


def last_epoch(log: LogView) -> int:
    """The epoch of the record before the log's end, which may be deleted; `NO_EPOCH` if the table
    does not say it.

    It is not the latest of the table: a leader begins an epoch before it writes a record in it.
    """
    epoch = log.epochs.epoch_before(log.end_offset)
    # The table of a log that never had a record begins with epoch 0, too.
    return NO_EPOCH if epoch == 0 and log.start_offset == log.end_offset else epoch


def end_offset_for(log: LogView, epoch: int) -> EpochEnd | None:
    """The largest epoch that is not above `epoch`, and where its records end (KIP-279)."""
    return log.epochs.end_offset_for(epoch, log_end=log.end_offset)


def has_unused_epoch(log: LogView) -> bool:
    """Whether the table ends with an epoch of which the log holds no record; 0 does not count."""
    latest = log.epochs.latest
    return latest > 0 and latest != last_epoch(log)
