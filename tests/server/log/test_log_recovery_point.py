"""The recovery point: what a start after a kill takes for durable, and what that may cost."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_server.environment.seams import ReadBuffer
from millrace_server.log import CorruptLog, LogConfig, PartitionLog
from millrace_server.log.checkpoint import read_checkpoint
from millrace_server.log.recovery_point import (
    RECOVERY_POINT_NAME,
    RECOVERY_POINT_SIZE,
    RecoveryPoint,
    RecoveryPointFile,
    read_recovery_point,
)
from millrace_simulation.disk import FaultyDisk, FaultyFile
from tests.server.log.log_model import DIRECTORY, append, read_all

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200)
MARK_PATH = f"{DIRECTORY}/{RECOVERY_POINT_NAME}"
OFFSETS = st.integers(0, 2**63 - 1)
KEPT = [f"sync {MARK_PATH}", f"sync directory {DIRECTORY}"]
"""All that a log which is refused has done to its disk."""


def values(log: PartitionLog) -> list[bytes | None]:
    return [value for _, _, value in read_all(log)]


def written(disk: FaultyDisk, *, count: int = 3, unsynced: int = 0) -> PartitionLog:
    """A log of one segment with an early checkpoint; all but the last `unsynced` are durable."""
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for number in range(count):
        append(log, [b"%d" % number + b"v" * 100])
        if number == 0:
            log.flush(checkpoint=True)
        if number == count - 1 - unsynced:
            log.flush()
    return log


def reopened(disk: FaultyDisk, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(disk, DIRECTORY, config, now_ms=1)


def write_recovery_point(disk: FaultyDisk, point: RecoveryPoint) -> None:
    file = RecoveryPointFile(disk, DIRECTORY)
    file.write(point)
    file.close()


@given(OFFSETS, OFFSETS, OFFSETS)
def test_a_recovery_point_is_read_as_it_was_written(end: int, base: int, position: int) -> None:
    point = RecoveryPoint(end, base, position)
    data = point.encode()
    assert len(data) == RECOVERY_POINT_SIZE <= 512
    assert RecoveryPoint.decode(data) == RecoveryPoint.decode(data + b"more") == point
    for size in range(RECOVERY_POINT_SIZE):
        assert RecoveryPoint.decode(data[:size]) is None
        assert RecoveryPoint.decode(data[:size] + bytes(RECOVERY_POINT_SIZE - size)) in (
            None,
            point,
        )


def test_the_recovery_point_follows_every_sync_and_is_not_synced_itself() -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    assert read_recovery_point(disk, DIRECTORY) is None
    for number in range(30):
        append(log, [b"%d" % number + b"v" * 100])
        disk.journal.clear()
        log.flush()
        segment = log._chain.active
        assert read_recovery_point(disk, DIRECTORY) == (
            number + 1,
            segment.base_offset,
            segment.size_bytes,
        )
        assert disk.journal.count(f"write {MARK_PATH}") == 1
        assert f"sync {MARK_PATH}" not in disk.journal
    assert log.segment_count > 1
    disk.journal.clear()
    log.flush(checkpoint=True)
    assert f"write {MARK_PATH}" not in disk.journal, "the durable offset has not moved"


def test_an_idle_log_holds_no_descriptor_of_its_recovery_point() -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for number in range(3):
        append(log, [b"%d" % number])
        ticket = log.begin_flush()
        assert ticket is not None
        ticket.sync()
        for _ in range(3):
            log.close_idle_files()
        assert disk.open_files.count(MARK_PATH) == 1, "a flush is under way"
        log.finish_flush(ticket)
        log.finish_settle(ticket)
        log.close_idle_files()
        assert disk.open_files.count(MARK_PATH) == 1, "it was flushed a while ago"
        log.close_idle_files()
        assert MARK_PATH not in disk.open_files
    point = read_recovery_point(disk, DIRECTORY)
    assert point is not None
    assert point.end_offset == log.end_offset
    log.close()
    assert disk.open_files == []


def test_a_start_after_a_kill_writes_and_syncs_nothing_that_was_durable() -> None:
    disk = FaultyDisk()
    written(disk, count=9)
    killed = disk.after_kill()
    log = reopened(killed)
    assert log.recovery.scanned_bytes > 0
    assert killed.journal == []
    assert log.durable_offset == log.end_offset == 9
    assert len(values(log)) == 9


def test_what_lies_behind_the_recovery_point_is_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FaultyDisk()
    size_bytes = written(disk, count=9, unsynced=2)._chain.active.size_bytes
    point = read_recovery_point(disk, DIRECTORY)
    assert point is not None
    assert (point.end_offset, point.position) == (7, size_bytes * 7 // 9)
    writes: list[tuple[str, int, int]] = []
    pwrite = FaultyFile.pwrite

    def noted(file: FaultyFile, data: ReadBuffer, position: int) -> None:
        writes.append((file.path.rpartition("/")[2], position, len(data)))
        pwrite(file, data, position)

    monkeypatch.setattr(FaultyFile, "pwrite", noted)
    log = reopened(disk.after_kill())
    rewritten = [write for write in writes if write[0].endswith(".log")]
    assert rewritten == [(f"{0:020d}.log", point.position, size_bytes - point.position)]
    assert log.durable_offset == 9


def test_kill_after_kill_the_log_behind_the_checkpoint_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millrace_server.log.durability.CHECKPOINT_BATCHES", 12)
    config = LogConfig(segment_bytes=1 << 20)
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, config)
    for number in range(4):
        for part in range(3):
            assert not log.is_flush_due
            append(log, [b"%d-%d" % (number, part)])
        if number < 3:
            log.flush()
            disk = disk.after_kill()
            log = reopened(disk, config)
    assert log.is_flush_due, "no start has to read more than one checkpoint's worth"
    log.flush()
    checkpoint = read_checkpoint(disk, DIRECTORY)
    assert checkpoint is not None
    assert checkpoint.end_offset == 12


def test_what_was_refused_stays_refused_after_a_power_cut() -> None:
    cut = 0
    for seed in range(20):
        disk = FaultyDisk()
        log = written(disk)
        position = log._chain.active.size_bytes - 5
        disk = disk.after_kill()
        disk.flip_bit(f"{DIRECTORY}/{0:020d}.log", position, 1)
        # Without a read the recovery point may be lost, and the damage is a torn tail then.
        cut += read_recovery_point(disk.after_power_cut(random.Random(seed)), DIRECTORY) is None
        with pytest.raises(CorruptLog):
            reopened(disk)
        with pytest.raises(CorruptLog):
            reopened(disk.after_power_cut(random.Random(seed)))
    assert cut


@pytest.mark.parametrize("survives", [True, False])
def test_a_changed_byte_is_refused_below_the_recovery_point_and_cut_without_one(
    survives: bool,
) -> None:
    disk = FaultyDisk()
    log = written(disk)
    position = log._chain.active.size_bytes - 5
    disk = disk.after_kill()
    disk.flip_bit(f"{DIRECTORY}/{0:020d}.log", position, 1)
    if not survives:
        disk.remove(MARK_PATH)
        assert values(reopened(disk)) == [b"%d" % n + b"v" * 100 for n in range(2)]
        return
    with pytest.raises(CorruptLog, match="all before offset 3 was durable; nothing was changed"):
        reopened(disk)
    assert disk.journal == KEPT


@pytest.mark.parametrize("lost", ["the last batch", "half a batch", "everything behind"])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_log_that_ends_before_its_recovery_point_is_refused(
    lost: str, has_checkpoint: bool
) -> None:
    disk = FaultyDisk()
    size_bytes = written(disk)._chain.active.size_bytes
    disk = disk.after_kill()
    if not has_checkpoint:
        disk.remove(f"{DIRECTORY}/checkpoint")
    kept = {"the last batch": 2, "half a batch": 2.5, "everything behind": 1}[lost]
    disk.open(f"{DIRECTORY}/{0:020d}.log", write=True).truncate(int(size_bytes * kept / 3))
    disk.journal.clear()
    with pytest.raises(CorruptLog, match="all before offset 3 was durable"):
        reopened(disk)
    assert disk.journal == KEPT


def test_a_log_that_is_refused_is_left_as_it_was_with_all_that_was_to_be_done() -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for number in range(40):
        append(log, [b"%d" % number + b"v" * 100])
        if number == 30:
            log.flush(checkpoint=True)
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    active = log._chain.active
    bases = [segment.base_offset for segment in log._chain.segments]
    assert 31 < active.base_offset < 39
    disk = disk.after_kill()
    # An index to be built again, an unfinished checkpoint, and space to be trimmed.
    disk.remove(f"{DIRECTORY}/{bases[1]:020d}.index")
    disk.open(f"{DIRECTORY}/checkpoint.tmp", create=True)
    disk.open(f"{DIRECTORY}/{bases[-2]:020d}.log", write=True).preallocate(5_000)
    last = f"{DIRECTORY}/{active.base_offset:020d}.log"
    disk.flip_bit(last, active.size_bytes - 5, 1)
    disk.journal.clear()
    with pytest.raises(CorruptLog, match="all before offset 40 was durable"):
        reopened(disk)
    assert disk.journal == KEPT
    disk.flip_bit(last, active.size_bytes - 5, 1)
    log = reopened(disk)
    assert log.recovery.rebuilt_indexes == 1
    assert log.recovery.trimmed_bytes > 0
    assert [number for number, _, _ in read_all(log)] == list(range(40))
    names = disk.list_directory(DIRECTORY)
    assert f"{bases[1]:020d}.index" in names
    assert "checkpoint.tmp" not in names


def test_a_durable_segment_that_is_gone_is_refused() -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for number in range(30):
        append(log, [b"%d" % number + b"v" * 100])
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    bases = [segment.base_offset for segment in log._chain.segments]
    assert len(bases) > 2
    for base in bases[1:]:
        damaged = disk.after_kill()
        damaged._cached = damaged._cached.copy()
        damaged.remove(f"{DIRECTORY}/{base:020d}.log")
        damaged.journal.clear()
        with pytest.raises(CorruptLog, match="all before offset 30 was durable"):
            reopened(damaged)
        assert damaged.journal == KEPT


def test_zeros_before_the_recovery_point_are_no_reserved_space() -> None:
    disk = FaultyDisk()
    size_bytes = written(disk)._chain.active.size_bytes
    disk = disk.after_kill()
    file = disk.open(f"{DIRECTORY}/{0:020d}.log", write=True)
    file.truncate(size_bytes * 2 // 3)
    file.truncate(size_bytes)
    with pytest.raises(CorruptLog, match="the log ends at offset 2, and all before offset 3"):
        reopened(disk)


@pytest.mark.parametrize("wrong", [RecoveryPoint(3, 0, 17), RecoveryPoint(3, 1, 0)])
def test_a_recovery_point_that_no_batch_ends_at_is_refused(wrong: RecoveryPoint) -> None:
    disk = FaultyDisk()
    written(disk)
    disk = disk.after_kill()
    write_recovery_point(disk, wrong)
    with pytest.raises(CorruptLog):
        reopened(disk)


def test_a_recovery_point_of_segments_that_retention_has_deleted_says_nothing() -> None:
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=1_000, retention_bytes=1_500)
    log = PartitionLog.create(disk, DIRECTORY, config)
    for number in range(30):
        append(log, [b"%d" % number + b"v" * 100])
        if number == 2:
            log.flush()
    old = read_recovery_point(disk, DIRECTORY)
    log.flush()
    assert log.retention(1, high_watermark=30)
    log.close()
    assert old is not None
    assert old.end_offset < log.start_offset
    write_recovery_point(disk, old)
    for has_checkpoint in (True, False):
        if not has_checkpoint:
            disk.remove(f"{DIRECTORY}/checkpoint")
        again = reopened(disk, config)
        assert (again.start_offset, again.end_offset) == (log.start_offset, 30)
        assert again.recovery.is_clean == has_checkpoint
        again.discard()


def test_the_recovery_point_makes_up_for_a_checkpoint_that_is_gone() -> None:
    disk = FaultyDisk()
    written(disk).close()
    disk.remove(f"{DIRECTORY}/checkpoint")
    log = reopened(disk.after_kill())
    assert log.durable_offset == log.end_offset == 3
    log.discard()
    disk.remove(f"{DIRECTORY}/checkpoint")
    disk.flip_bit(f"{DIRECTORY}/{0:020d}.log", log.size_bytes - 5, 1)
    with pytest.raises(CorruptLog, match="CRC"):
        # A bad last batch would be taken for a torn one, if it were not known to be durable.
        reopened(disk)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["create", "write"])
def test_a_recovery_point_that_has_no_room_costs_nothing_and_the_next_one_is_written(
    code: int, operation: str
) -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    disk.judge = lambda name, path: code if (name, path) == (operation, MARK_PATH) else None
    for number in range(3):
        append(log, [b"%d" % number])
        log.flush()
    assert log.durable_offset == 3
    assert read_recovery_point(disk, DIRECTORY) is None
    again = reopened(disk.after_kill())
    assert again.end_offset == 3
    disk.judge = lambda name, path: None
    append(log, [b"3"])
    log.flush()
    point = read_recovery_point(disk, DIRECTORY)
    assert point is not None
    assert point.end_offset == 4


def test_an_io_error_of_the_recovery_point_stops_the_log_after_what_was_synced_is_told() -> None:
    disk = FaultyDisk()
    log = written(disk)
    append(log, [b"last"])
    disk.judge = lambda name, path: errno.EIO if path == MARK_PATH else None
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    log.finish_flush(ticket)
    assert log.durable_offset == 4
    assert ticket.has_chores
    with pytest.raises(OSError, match="Input/output error"):
        ticket.settle()
    log.finish_settle(ticket)
    disk.judge = lambda name, path: None
    assert reopened(disk.after_kill()).end_offset == 4


def test_a_failed_sync_moves_no_recovery_point_and_a_start_goes_on_from_the_one_before() -> None:
    disk = FaultyDisk()
    log = written(disk)
    before = read_recovery_point(disk, DIRECTORY)
    append(log, [b"never acked"])
    disk.judge = lambda name, path: errno.EIO if name == "sync" else None
    with pytest.raises(OSError):
        log.flush()
    disk = disk.after_kill()
    assert read_recovery_point(disk, DIRECTORY) == before
    log = reopened(disk)
    assert log.durable_offset == log.end_offset == 4
    assert f"write {DIRECTORY}/{0:020d}.log" in disk.journal, "the kernel calls it clean"
    append(log, [b"acked"])
    log.flush()
    for seed in range(20):
        again = reopened(disk.after_power_cut(random.Random(seed)))
        assert values(again)[3:] == [b"never acked", b"acked"]


def test_a_torn_tail_behind_the_recovery_point_is_cut_and_the_cut_is_durable() -> None:
    disk = FaultyDisk()
    log = written(disk, count=5, unsynced=2)
    size_bytes = log._chain.active.size_bytes
    disk = disk.after_kill()
    # Of what was not synced the first batch is damaged and the second one whole.
    disk.flip_bit(f"{DIRECTORY}/{0:020d}.log", size_bytes * 3 // 5 + 80, 1)
    log = reopened(disk)
    assert log.recovery.cut is not None
    assert log.durable_offset == log.end_offset == 3
    append(log, [b"3" + b"w" * 100])
    for seed in range(30):
        again = reopened(disk.after_power_cut(random.Random(seed)))
        assert values(again)[3:] in ([], [b"3" + b"w" * 100]), "what was cut does not come back"


def test_what_a_failed_write_left_before_a_roll_does_not_cut_what_came_after() -> None:
    disk = FaultyDisk()
    log = written(disk)
    room = CONFIG.segment_bytes - log._chain.active.size_bytes
    disk.fail_at = {disk.operations: errno.ENOSPC}
    with pytest.raises(OSError):
        append(log, [b"x" * (room - 100)])
    # The next batch is too large for this segment, and what failed is left behind in it.
    append(log, [b"y" * room])
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    for has_recovery_point in (True, False):
        killed = disk.after_kill()
        killed._cached = killed._cached.copy()
        if not has_recovery_point:
            killed.remove(MARK_PATH)
        again = reopened(killed)
        assert again.end_offset == 4
        assert again.recovery.cut is None
        assert values(again)[3] == b"y" * room
