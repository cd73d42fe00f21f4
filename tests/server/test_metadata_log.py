"""The metadata log of a follower whose disk is full in the midst of what its leader sent."""

from __future__ import annotations

import errno
import uuid
from typing import cast

import pytest

from millrace_protocol.metadata_records import TopicRecord, encode_metadata_record
from millrace_protocol.records import assign, encode_batch
from millrace_server.log import LogConfig, PartitionLog, UnexpectedBatch
from millrace_server.partitions.partition import Partition
from millrace_server.quorum.metadata_log import MetadataLog
from millrace_simulation.disk import FaultyDisk
from tests.crash.machine_in_memory import StoppedClock
from tests.server.log.log_model import DIRECTORY, read_all


class FollowingPartition:
    """What the log needs of a partition that follows."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.log = PartitionLog.create(disk, DIRECTORY, LogConfig())

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    def note_fetched(self, end_offset: int, size_bytes: int) -> None:
        pass


def records(*names: str) -> list[bytes]:
    return [encode_metadata_record(TopicRecord(name, uuid.UUID(int=1))) for name in names]


def from_leader(first: int, *names: str) -> bytes:
    """One batch for each topic, from offset `first` on."""
    batches = b""
    for offset, record in enumerate(records(*names), first):
        batch = encode_batch([record], timestamps_ms=1)
        assign(batch, base_offset=offset, leader_epoch=7)
        batches += batch
    return batches


def test_an_append_that_a_full_disk_cut_short_is_continued_when_it_is_repeated() -> None:
    disk = FaultyDisk()
    partition = FollowingPartition(disk)
    log = MetadataLog(cast(Partition, partition), StoppedClock(), ())
    log.append_fetched(from_leader(0, "a"), offset=0)
    sent = from_leader(1, "b", "c", "d")
    disk.fail_at = {disk.operations + 1: errno.ENOSPC}
    with pytest.raises(OSError, match="No space"):
        log.append_fetched(sent, offset=1)
    assert log.end_offset == 2
    log.append_fetched(sent, offset=1)
    assert [value for _, _, value in read_all(partition.log)] == records("a", "b", "c", "d")


def test_what_was_not_fetched_from_the_end_of_the_log_is_refused() -> None:
    log = MetadataLog(cast(Partition, FollowingPartition(FaultyDisk())), StoppedClock(), ())
    log.append_fetched(from_leader(0, "a", "b"), offset=0)
    with pytest.raises(UnexpectedBatch):
        log.append_fetched(from_leader(1, "b", "c"), offset=2)
