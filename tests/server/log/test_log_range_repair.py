"""Corrupt ranges are written anew with the bytes of another replica, and with nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_server.log import (
    CorruptLog,
    CorruptRange,
    CorruptRecords,
    PartitionLog,
    RecordsUnderRepair,
    UnexpectedBatch,
)
from tests.crash.durable_states import MomentDisk
from tests.server.log.closed_log import (
    CONFIG,
    COUNT,
    EPOCH_BYTES,
    FILES,
    FIRST,
    RECORDS,
    flipped,
    size,
)
from tests.server.log.log_model import DIRECTORY
from tests.server.log.test_log_corrupt_reads import BATCH_BYTES, consume

NAME = f"{FIRST}.log"
PATH = f"{DIRECTORY}/{NAME}"
SOUND = FILES[PATH] or b""


def damaged(*positions: int) -> tuple[MomentDisk, PartitionLog, list[CorruptRange]]:
    """A log whose damage has been found by a reader of all of it."""
    disk = flipped(NAME, positions[0], 0)
    for position in positions[1:]:
        write(disk, bytes([SOUND[position] ^ 1]), position)
    log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
    consume(log, max_bytes=1_000)
    return disk, log, log.range_repairs.ranges()


def write(disk: MomentDisk, data: bytes, position: int) -> None:
    file = disk.open(PATH, write=True)
    file.pwrite(data, position)
    file.sync()
    file.release()


def repair(log: PartitionLog, found: CorruptRange, batches: bytes) -> None:
    assert log.range_repairs.begin(found, do_readers_wait=True)
    log.range_repairs.write(found, batches)
    log.range_repairs.end(found, is_repaired=True)


@given(places=st.sets(st.integers(0, size(NAME) - 1), min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_what_another_replica_has_makes_the_log_whole(places: set[int]) -> None:
    places = {place for place in places if place % BATCH_BYTES not in EPOCH_BYTES}
    if not places:
        return
    disk, log, ranges = damaged(*places)
    assert ranges
    for found in ranges:
        repair(log, found, SOUND[found.position : found.end_position])
    assert log.range_repairs.ranges() == []
    assert consume(log, max_bytes=500) == (RECORDS, [])
    log.discard()
    assert disk.contents()[PATH] == SOUND
    # It is on the disk.
    after = MomentDisk.holding(disk.contents())
    assert consume(PartitionLog.open(after, DIRECTORY, CONFIG, now_ms=1), max_bytes=500)[1] == []


def test_readers_come_again_while_a_range_is_repaired() -> None:
    _, log, (found,) = damaged(BATCH_BYTES + 70)
    repairs = log.range_repairs
    assert repairs.begin(found, do_readers_wait=True)
    with pytest.raises(RecordsUnderRepair, match="offsets 1 to 1 are being fetched from another"):
        log.reader.read(1, max_bytes=1_000, end_offset=COUNT)
    assert log.reader.read(0, max_bytes=1_000, end_offset=COUNT).next_offset == 1
    repairs.end(found, is_repaired=False)
    with pytest.raises(CorruptRecords):
        log.reader.read(1, max_bytes=1_000, end_offset=COUNT)
    assert repairs.begin(found, do_readers_wait=False)
    with pytest.raises(CorruptRecords):
        log.reader.read(1, max_bytes=1_000, end_offset=COUNT)


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        (b"", UnexpectedBatch),
        (SOUND[BATCH_BYTES : 3 * BATCH_BYTES], UnexpectedBatch),
        (SOUND[BATCH_BYTES : 2 * BATCH_BYTES - 1], UnexpectedBatch),
        (SOUND[:BATCH_BYTES], CorruptLog),
        (SOUND[2 * BATCH_BYTES : 3 * BATCH_BYTES], CorruptLog),
        (bytes(BATCH_BYTES), CorruptLog),
        (SOUND[BATCH_BYTES : 2 * BATCH_BYTES - 1] + b"\1", CorruptLog),
    ],
)
def test_other_bytes_are_refused_and_nothing_is_written(
    batches: bytes, error: type[Exception]
) -> None:
    disk, log, (found,) = damaged(BATCH_BYTES + 70)
    before = disk.contents()
    with pytest.raises(error):
        log.range_repairs.write(found, batches)
    assert disk.contents() == before


@pytest.mark.parametrize("place", [BATCH_BYTES, BATCH_BYTES + 70, 2 * BATCH_BYTES - 1])
def test_a_range_is_whole_once_the_disk_gives_what_was_written(place: int) -> None:
    disk, log, (found,) = damaged(place)
    assert not log.range_repairs.is_readable(found)
    write(disk, bytes([SOUND[place]]), place)
    assert log.range_repairs.is_readable(found)
    log.range_repairs.end(found, is_repaired=True)
    assert consume(log, max_bytes=500) == (RECORDS, [])
    assert not log.range_repairs.is_readable(found)


def test_whole_batches_of_other_offsets_are_not_what_was_written() -> None:
    disk, log, (found,) = damaged(BATCH_BYTES + 70)
    for other in (0, 2 * BATCH_BYTES):
        write(disk, SOUND[other : other + BATCH_BYTES], found.position)
        assert not log.range_repairs.is_readable(found)


def test_a_range_that_is_gone_is_not_written() -> None:
    disk, log, (found,) = damaged(BATCH_BYTES + 70)
    log.advance_start(10, high_watermark=COUNT)
    before = disk.contents()
    assert not log.range_repairs.begin(found, do_readers_wait=True)
    log.range_repairs.write(found, SOUND[found.position : found.end_position])
    log.range_repairs.end(found, is_repaired=True)
    assert disk.contents() == before
