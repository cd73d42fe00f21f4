"""Opening a log on a real disk: a torn tail is cut, corruption is refused, indexes are rebuilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace_server.disk.os_disk import OsDisk
from millrace_server.log import CorruptLog, LogConfig, PartitionLog
from millrace_server.log.integrity.scan import Ending
from millrace_server.log.verdicts import Standing, Verdict, verdict
from tests.server.log.log_model import DIRECTORY, append, read_all
from tests.server.log.times import first_at_or_after

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300)
VALUES = [b"%03d-" % number + b"v" * 100 for number in range(60)]


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path / "data")


@pytest.fixture
def directory(disk: OsDisk) -> Path:
    return disk.root / DIRECTORY


def write_log(
    disk: OsDisk, values: list[bytes] = VALUES, *, unsynced: int = 0, checkpoint: bool = True
) -> None:
    """Leaves a log as a killed process does, with the last `unsynced` batches never flushed."""
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for number, value in enumerate(values):
        if number == len(values) - unsynced:
            log.flush(checkpoint=checkpoint)
        append(log, [value], timestamps_ms=number)
    if not unsynced:
        log.flush(checkpoint=checkpoint)
    log.discard()


def open_log(disk: OsDisk, *, verify: bool = False) -> PartitionLog:
    return PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=5000, verify=verify)


def values(log: PartitionLog) -> list[bytes | None]:
    return [value for _, _, value in read_all(log)]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def test_a_log_closed_in_order_is_opened_without_reading_it(disk: OsDisk) -> None:
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for value in VALUES:
        append(log, [value])
    log.close()
    log = open_log(disk)
    assert log.recovery.is_clean
    assert log.recovery.scanned_bytes == 0
    assert log.recovery.rebuilt_indexes == 0
    assert log.durable_offset == log.end_offset == 60
    assert values(log) == VALUES


def test_after_a_kill_only_what_is_behind_the_checkpoint_is_read(disk: OsDisk) -> None:
    write_log(disk, unsynced=3)
    log = open_log(disk)
    assert not log.recovery.is_clean
    assert 0 < log.recovery.scanned_bytes < 3 * 200
    assert log.recovery.cut_bytes == 0
    assert log.durable_offset == log.end_offset == 60
    assert values(log) == VALUES


@pytest.mark.parametrize("cut", [1, 11, 12, 60, 61, 100, 150])
def test_a_torn_last_batch_is_cut(disk: OsDisk, directory: Path, cut: int) -> None:
    write_log(disk, unsynced=2)
    last = segments(directory)[-1]
    data = last.read_bytes()
    last.write_bytes(data[:-cut])
    log = open_log(disk)
    assert values(log) == VALUES[:59]
    assert log.recovery.cut is not None
    assert last.stat().st_size == len(data) - log.recovery.cut_bytes - cut
    assert append(log, [b"again"]).base_offset == 59


@pytest.mark.parametrize("tail", [b"\xff" * 200, b"garbage", b"\0" * 8 + b"\x7f" * 100])
def test_garbage_behind_the_durable_end_is_cut(disk: OsDisk, directory: Path, tail: bytes) -> None:
    write_log(disk)
    with segments(directory)[-1].open("ab") as file:
        file.write(tail)
    log = open_log(disk)
    assert log.recovery.cut_bytes == len(tail)
    assert values(log) == VALUES


def test_preallocated_space_is_trimmed(disk: OsDisk, directory: Path) -> None:
    write_log(disk)
    last = segments(directory)[-1]
    size = last.stat().st_size
    with last.open("ab") as file:
        file.truncate(size + 100_000)
    log = open_log(disk)
    assert (log.recovery.trimmed_bytes, log.recovery.cut_bytes) == (100_000, 0)
    assert log.recovery.cut is None, "nothing of the log was lost"
    assert last.stat().st_size == size
    assert values(log) == VALUES


def test_a_bad_batch_behind_the_checkpoint_cuts_the_log_there_and_all_segments_after(
    disk: OsDisk, directory: Path
) -> None:
    write_log(disk, unsynced=55, checkpoint=True)
    damaged = segments(directory)[1]
    flip(damaged, 100)
    log = open_log(disk)
    assert values(log) == VALUES[: int(damaged.stem)]
    assert segments(directory) == segments(directory)[:2]
    assert log.recovery.dropped_segments > 0


@pytest.mark.parametrize("position", [70, 1000, 3000])
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_changed_bit_below_the_checkpoint_is_refused_by_verification(
    disk: OsDisk, directory: Path, segment: int, position: int
) -> None:
    write_log(disk)
    path = segments(directory)[segment]
    flip(path, position % path.stat().st_size)
    before = contents(directory)
    with pytest.raises(CorruptLog, match="Restore the partition from a replica"):
        open_log(disk, verify=True)
    assert contents(directory) == before


@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_segment_shorter_than_the_checkpoint_says_is_refused(
    disk: OsDisk, directory: Path, segment: int
) -> None:
    write_log(disk)
    path = segments(directory)[segment]
    path.write_bytes(path.read_bytes()[:-1])
    before = contents(directory)
    with pytest.raises(CorruptLog, match="bytes of the file were durable"):
        open_log(disk)
    assert contents(directory) == before


@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_missing_segment_is_refused(disk: OsDisk, directory: Path, segment: int) -> None:
    write_log(disk)
    segments(directory)[segment].unlink()
    before = contents(directory)
    with pytest.raises(CorruptLog, match="not all of them are there"):
        open_log(disk)
    assert contents(directory) == before


def test_a_segment_of_another_log_with_the_same_offsets_and_length_is_served(
    disk: OsDisk, directory: Path, tmp_path: Path
) -> None:
    write_log(disk)
    other = OsDisk(tmp_path / "other")
    write_log(other, [value.swapcase() for value in VALUES])
    replaced, copied = (segments(root)[1] for root in (directory, other.root / DIRECTORY))
    assert replaced.name == copied.name
    replaced.write_bytes(copied.read_bytes())

    log = open_log(disk, verify=True)
    found = values(log)
    log.close()
    begin = int(replaced.stem)
    end = int(segments(directory)[2].stem)
    assert found[:begin] == VALUES[:begin]
    assert found[begin:end] == [value.swapcase() for value in VALUES[begin:end]]
    assert found[end:] == VALUES[end:]


@pytest.mark.parametrize("damage", ["missing", "flipped", "cut", "empty"])
def test_a_broken_checkpoint_costs_a_scan_and_no_data(
    disk: OsDisk, directory: Path, damage: str
) -> None:
    write_log(disk)
    path = directory / "checkpoint"
    if damage == "missing":
        path.unlink()
    elif damage == "flipped":
        flip(path, path.stat().st_size // 2)
    else:
        path.write_bytes(path.read_bytes()[:-1] if damage == "cut" else b"")
    log = open_log(disk)
    assert not log.recovery.has_checkpoint
    assert log.recovery.scanned_bytes == sum(path.stat().st_size for path in segments(directory))
    assert values(log) == VALUES
    log.close()
    assert open_log(disk).recovery.is_clean


def test_without_a_checkpoint_a_bad_batch_before_a_whole_one_is_refused(
    disk: OsDisk, directory: Path
) -> None:
    write_log(disk)
    (directory / "checkpoint").unlink()
    flip(segments(directory)[-1], 100)
    before = contents(directory)
    with pytest.raises(CorruptLog, match="CRC"):
        open_log(disk)
    assert contents(directory) == before


def test_without_a_checkpoint_a_hole_between_segments_is_refused(
    disk: OsDisk, directory: Path
) -> None:
    write_log(disk)
    (directory / "checkpoint").unlink()
    segments(directory)[1].unlink()
    with pytest.raises(CorruptLog, match="is next, and"):
        open_log(disk)


def test_without_a_checkpoint_zeros_before_other_bytes_are_refused(
    disk: OsDisk, directory: Path
) -> None:
    write_log(disk)
    (directory / "checkpoint").unlink()
    path = segments(directory)[-1]
    data = path.read_bytes()
    assert len(data) > 400
    path.write_bytes(bytes(300) + data[300:])
    before = contents(directory)
    with pytest.raises(CorruptLog, match="zeros, and bytes"):
        open_log(disk)
    assert contents(directory) == before


def test_without_a_checkpoint_a_torn_end_is_cut(disk: OsDisk, directory: Path) -> None:
    write_log(disk, unsynced=1)
    (directory / "checkpoint").unlink()
    last = segments(directory)[-1]
    last.write_bytes(last.read_bytes()[:-5])
    assert values(open_log(disk)) == VALUES[:59]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd size", "garbage", "older"])
def test_indexes_that_are_gone_or_wrong_are_rebuilt(
    disk: OsDisk, directory: Path, suffix: str, damage: str
) -> None:
    write_log(disk)
    for path in directory.glob(f"*{suffix}"):
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "garbage":
            path.write_bytes(bytes(range(1, 13)) * 2 * (len(data) // 24))
        elif damage == "older":
            path.write_bytes(data[: len(data) // 24 * 12])
        else:
            path.write_bytes(b"" if damage == "empty" else data + b"\x01")
    log = open_log(disk)
    assert values(log) == VALUES
    for number in range(60):
        found = first_at_or_after(log, number, end_offset=60)
        assert found == (number, number)
    assert append(log, [b"next"]).base_offset == 60


def test_files_of_segments_that_retention_was_deleting_are_removed(
    disk: OsDisk, directory: Path
) -> None:
    write_log(disk)
    saved = {path: path.read_bytes() for path in directory.iterdir() if path.name[:20].isdigit()}
    config = LogConfig(segment_bytes=4000, index_interval_bytes=300, retention_bytes=5000)
    log = PartitionLog.open(disk, DIRECTORY, config, now_ms=0)
    removed = log.retention(0, high_watermark=60)
    assert removed
    log.close()
    gone = [path for path in saved if not path.exists()]
    assert len(gone) == 3 * len(removed)
    for path in gone:
        path.write_bytes(saved[path])
    log = open_log(disk)
    assert not any(path.exists() for path in gone)
    assert values(log) == VALUES[log.start_offset :]


def test_the_verdicts_refuse_all_that_was_durable_and_cut_nothing_that_may_have_been() -> None:
    for ending in Ending:
        durable = verdict(ending, Standing.DURABLE)
        kept = {Ending.WHOLE: Verdict.KEEP, Ending.CONTINUED: Verdict.TRIM}
        assert durable is kept.get(ending, Verdict.REFUSE)
        assert verdict(ending, Standing.UNSYNCED) is not Verdict.REFUSE
    for ending in (Ending.DAMAGED, Ending.MISSING):
        assert verdict(ending, Standing.UNKNOWN_LAST) is Verdict.REFUSE
    for ending in (Ending.TORN, Ending.BAD, Ending.DAMAGED, Ending.MISSING):
        assert verdict(ending, Standing.UNKNOWN_EARLIER) is Verdict.REFUSE
