"""A bit that changes on the disk is found, and costs no other record.

Below the checkpoint a start reads no batches. What is wrong there is found when it is read
(`test_log_corrupt_reads`), and by `verify`. The next start reads every batch between the checkpoint
and the recovery point, and refuses the log.
"""

from __future__ import annotations

import pytest

from millrace_protocol.records import CorruptBatch
from millrace_server.log import CorruptLog, CorruptRecords, PartitionLog
from millrace_server.log.recovery_point import RECOVERY_POINT_NAME, RECOVERY_POINT_SIZE
from tests.crash.durable_states import MomentDisk
from tests.server.log.closed_log import (
    CONFIG,
    COUNT,
    EPOCH_BYTES,
    FIRST,
    LAST,
    RECORDS,
    flipped,
    size,
)
from tests.server.log.log_model import DIRECTORY, append, fetch, read_all
from tests.server.log.times import first_at_or_after

BATCH_BYTES = size(f"{LAST}.log") // (COUNT - int(LAST))


@pytest.mark.parametrize("segment", [FIRST, LAST])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_any_bit_of_an_index_may_change_and_no_reader_sees_it(segment: str, suffix: str) -> None:
    name = segment + suffix
    assert size(name) > 8
    for place in range(size(name) * 8):
        log = PartitionLog.open(flipped(name, *divmod(place, 8)), DIRECTORY, CONFIG, now_ms=1)
        assert read_all(log, max_bytes=300) == RECORDS
        for number in range(COUNT):
            assert first_at_or_after(log, number, end_offset=COUNT) == (number, number)
        assert append(log, [b"next"]).base_offset == COUNT
        log.discard()


@pytest.mark.parametrize("bit", range(8))
def test_any_bit_of_a_checkpoint_may_change_and_costs_a_scan(bit: int) -> None:
    for position in range(size("checkpoint")):
        disk = flipped("checkpoint", position, bit)
        log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
        assert read_all(log) == RECORDS
        log.discard()


@pytest.mark.parametrize("segment", [FIRST, LAST])
def test_any_bit_of_a_segment_that_changes_is_found_by_verification(segment: str) -> None:
    name = f"{segment}.log"
    found = 0
    for position in range(size(name)):
        if position % BATCH_BYTES in EPOCH_BYTES:
            continue
        disk = flipped(name, position, position % 8)
        before = disk.contents()
        with pytest.raises(CorruptLog):
            PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1, verify=True).discard()
        assert disk.contents() == before, "the evidence is kept"
        assert disk.open_files == []
        found += 1
    assert found > 500


def killed_log() -> dict[str, bytes | None]:
    """The files of a log whose process was killed with all durable, most behind the checkpoint."""
    disk = MomentDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for number in range(COUNT):
        append(log, [b"%03d" % number + b"v" * 100], timestamps_ms=number)
        if number == 2:
            log.flush(checkpoint=True)
    # Killed before the checkpoint that the rolls ask for.
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    return disk.contents()


def test_any_bit_behind_the_checkpoint_that_was_durable_is_refused_after_a_kill() -> None:
    files = killed_log()
    names = [name for name in files if name.endswith(".log")]
    refused = 0
    for name in names:
        content = files[name] or b""
        checkpointed_bytes = 3 * BATCH_BYTES if name == names[0] else 0
        for position in range(checkpointed_bytes, len(content)):
            if position % BATCH_BYTES in EPOCH_BYTES:
                continue
            changed = bytearray(content)
            changed[position] ^= 1 << position % 8
            disk = MomentDisk.holding({**files, name: bytes(changed)})
            with pytest.raises(CorruptLog, match="all before offset 16 was durable"):
                PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
            assert all(step.startswith("sync ") for step in disk.journal), "the evidence is kept"
            assert disk.open_files == []
            refused += 1
    assert len(names) > 1
    assert refused > 1_500
    log = PartitionLog.open(MomentDisk.holding(files), DIRECTORY, CONFIG, now_ms=1)
    assert read_all(log) == RECORDS


@pytest.mark.parametrize("bit", range(8))
def test_any_bit_of_a_recovery_point_may_change_and_no_record_is_lost(bit: int) -> None:
    files = killed_log()
    path = f"{DIRECTORY}/{RECOVERY_POINT_NAME}"
    for position in range(RECOVERY_POINT_SIZE):
        changed = bytearray(files[path] or b"")
        changed[position] ^= 1 << bit
        disk = MomentDisk.holding({**files, path: bytes(changed)})
        log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
        assert read_all(log) == RECORDS
        log.discard()


@pytest.mark.parametrize("segment", [FIRST, LAST])
def test_no_changed_value_is_taken_for_a_record_and_the_others_can_still_be_read(
    segment: str,
) -> None:
    name = f"{segment}.log"
    refused = 0
    for position in range(0, size(name), 3):
        if position % BATCH_BYTES < 8:
            # The base offset: see `test_any_bit_of_a_segment_...`; no CRC covers it.
            continue
        disk = flipped(name, position, position % 8)
        try:
            log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
        except CorruptLog:
            refused += 1
            continue
        for offset in range(COUNT):
            refused += _read_one(log, offset)
        log.discard()
    assert refused > 100


def _read_one(log: PartitionLog, offset: int) -> bool:
    """Reads from an offset as a consumer does; whether that was refused, by broker or reader."""
    try:
        read = log.reader.read(offset, max_bytes=1, end_offset=COUNT)
        assert read.slice is not None
        read.slice.release()
        found, _ = fetch(log, offset, max_bytes=1)
    except (CorruptLog, CorruptBatch, CorruptRecords):
        return True
    assert found[0] == RECORDS[offset]
    return False
