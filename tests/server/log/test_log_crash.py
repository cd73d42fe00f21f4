"""Whatever is durable survives a crash after every single disk operation of a log's life."""

from __future__ import annotations

import errno
import random

import pytest

from millrace_server.log import LogConfig, LogFailed, PartitionLog
from millrace_simulation.disk import FaultyDisk, PowerCut
from tests.server.log.log_model import DIRECTORY, LogModel, append, read_all

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, retention_bytes=6000)
PRODUCER = 77


class Life:
    """A log's life in miniature: appends, flushes, rolls, checkpoints, retention, shutdowns."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk
        self.model = LogModel()
        self.is_created = False

    def run(self) -> None:
        log = PartitionLog.create(self.disk, DIRECTORY, CONFIG)
        self.is_created = True
        for number in range(14):
            self.append(log, number)
            if number % 3 == 2:
                self.flush(log, checkpoint=number == 8)
        log.close()
        self.model.durable = len(self.model.records)
        log = PartitionLog.open(self.disk, DIRECTORY, CONFIG, now_ms=2000)
        for number in range(14, 40):
            self.append(log, number)
            if number % 4 == 3:
                self.flush(log)
            if number % 10 == 9:
                log.retention(2000, high_watermark=log.durable_offset)
                self.flush(log)
        log.close()
        self.model.durable = len(self.model.records)

    def append(self, log: PartitionLog, number: int) -> None:
        values = [b"%d-%d-" % (number, i) + b"x" * (90 + number * 9) for i in range(1 + number % 3)]
        base_sequence = len(self.model.records)
        self.model.extend(values, [1000 + number] * len(values))
        append(
            log,
            values,
            timestamps_ms=1000 + number,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=base_sequence,
        )

    def flush(self, log: PartitionLog, *, checkpoint: bool = False) -> None:
        ticket = log.begin_flush(checkpoint=checkpoint)
        if ticket is None:
            return
        try:
            ticket.sync()
            log.finish_flush(ticket)
            self.model.durable = log.durable_offset
            ticket.settle()
        finally:
            log.finish_settle(ticket)


def operations_of_a_whole_life() -> int:
    disk = FaultyDisk()
    Life(disk).run()
    assert disk.open_files == []
    return disk.operations


OPERATIONS = operations_of_a_whole_life()


def check_recovered(life: Life, disk: FaultyDisk) -> None:
    log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=3000)
    model = life.model
    assert log.start_offset <= log.durable_offset == log.end_offset
    assert model.durable <= log.end_offset <= len(model.records)
    found = read_all(log, max_bytes=400)
    assert found == model.records[log.start_offset : log.end_offset]
    check_producer(log, found)
    log.close()
    again = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=3000)
    assert again.recovery.is_clean
    assert again.recovery.scanned_bytes == 0
    assert read_all(again)[: len(found)] == found
    again.close()
    assert disk.open_files == []


def check_producer(log: PartitionLog, found: list[tuple[int, int, bytes | None]]) -> None:
    """The last batch is recognised when it is sent again, and the next one is taken."""
    if found:
        number = found[-1][2].split(b"-")[0] if found[-1][2] else b""
        batch = [record for record in found if record[2] and record[2].startswith(number + b"-")]
        repeated = append(
            log,
            [value for _, _, value in batch if value is not None],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=batch[0][0],
        )
        assert repeated.duplicate
        assert (repeated.base_offset, repeated.last_offset) == (batch[0][0], batch[-1][0])
    end_offset = log.end_offset
    taken = append(log, [b"next"], producer_id=PRODUCER, producer_epoch=0, base_sequence=end_offset)
    assert taken == (end_offset, end_offset, -1, False)


@pytest.mark.parametrize("survives", ["kill", "power cut"])
def test_durable_records_survive_a_crash_at_every_operation(survives: str) -> None:
    assert OPERATIONS > 100
    created = 0
    for crash_at in range(OPERATIONS):
        for seed in range(1 if survives == "kill" else 4):
            disk = FaultyDisk()
            disk.crash_at = crash_at
            life = Life(disk)
            with pytest.raises(PowerCut):
                life.run()
            if not life.is_created:
                continue
            created += 1
            rng = random.Random(f"{crash_at}/{seed}")
            check_recovered(
                life, disk.after_kill() if survives == "kill" else disk.after_power_cut(rng)
            )
    assert created > OPERATIONS // 2


def test_a_crash_during_recovery_is_recovered_from() -> None:
    crashes = 0
    for first in range(OPERATIONS // 2, OPERATIONS, 7):
        life = Life(FaultyDisk())
        life.disk.crash_at = first
        with pytest.raises(PowerCut):
            life.run()
        disk = life.disk.after_power_cut(random.Random(first))
        second = 0
        while True:
            # Recovery changes what it opens, so each attempt goes on where the last one stopped.
            disk.operations, disk.crash_at = 0, second
            try:
                PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=3000).discard()
                break
            except PowerCut:
                crashes += 1
                disk = disk.after_power_cut(random.Random(f"{first}/{second}"))
                second += 1
        disk.crash_at = None
        check_recovered(life, disk.after_kill())
    assert crashes > 20


def test_a_full_disk_at_any_operation_loses_nothing_and_is_survived() -> None:
    refused = 0
    for fail_at in range(OPERATIONS):
        disk = FaultyDisk()
        log = PartitionLog.create(disk, DIRECTORY, CONFIG)
        disk.operations = 0
        disk.fail_at = {fail_at: errno.ENOSPC}
        model = LogModel()
        syncs_failed = False
        for number in range(30):
            values = [b"%d" % number + b"x" * (90 + number * 9)]
            for attempt in range(2):
                try:
                    append(log, values, timestamps_ms=number)
                    break
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    assert attempt == 0
                    refused += 1
            model.extend(values, [number])
            if number % 3 == 2:
                try:
                    log.flush()
                except OSError:
                    # The kernel reports a full disk at a sync only after it has lost the data.
                    syncs_failed = True
                    break
        assert log.is_failed == syncs_failed
        assert read_all(log) == model.records[: log.end_offset]
        log.close()
        again = PartitionLog.open(disk.after_kill(), DIRECTORY, CONFIG, now_ms=3000)
        assert read_all(again) == model.records[: log.end_offset]
        if fail_at >= disk.operations:
            break
    assert refused > 20


def test_an_io_error_of_a_write_stops_the_log_and_keeps_what_is_there() -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    append(log, [b"kept"])
    disk.fail_at = {disk.operations: errno.EIO}
    with pytest.raises(OSError, match="Input/output error"):
        append(log, [b"lost"])
    assert log.is_failed
    assert log.end_offset == 1
    with pytest.raises(LogFailed, match="restart the broker"):
        append(log, [b"refused"])
    assert [value for _, _, value in read_all(log)] == [b"kept"]


def test_a_failed_sync_is_never_tried_again() -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    append(log, [b"value"])
    disk.fail_at = {disk.operations: errno.EIO}
    with pytest.raises(OSError):
        log.flush()
    assert disk.journal[-1].startswith("sync ")
    operations = disk.operations
    with pytest.raises(LogFailed):
        log.flush()
    log.close()
    assert disk.operations == operations, "not even a checkpoint is written after it"
    assert log.durable_offset == 0


def test_what_a_failed_write_left_behind_is_not_taken_for_a_batch() -> None:
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    disk.fail_at = {disk.operations: errno.ENOSPC}
    with pytest.raises(OSError):
        append(log, [b"x" * 1000])
    append(log, [b"short"])
    killed = disk.after_kill()
    again = PartitionLog.open(killed, DIRECTORY, CONFIG, now_ms=0)
    assert again.recovery.cut_bytes == 0
    assert [value for _, _, value in read_all(again)] == [b"short"]


def test_what_a_failed_sync_left_in_the_cache_is_written_again_before_it_counts_as_durable() -> (
    None
):
    disk = FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    append(log, [b"never acked"])
    disk.fail_at = {disk.operations: errno.EIO}
    with pytest.raises(OSError):
        log.flush()
    log.discard()
    # The process ends, the machine runs on: the kernel holds the batch and calls it clean.
    disk = disk.after_kill()
    log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=3000)
    assert log.durable_offset == 1
    append(log, [b"acked"])
    log.flush()
    log = PartitionLog.open(disk.after_power_cut(random.Random(1)), DIRECTORY, CONFIG, now_ms=3000)
    assert [value for _, _, value in read_all(log)] == [b"never acked", b"acked"]
