"""Leader epochs of a log: the table, the follower's appends, and truncation."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import CorruptBatch, assign, encode_batch
from millrace_server.log import (
    CorruptLog,
    EpochEnd,
    LogConfig,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionLog,
    UnexpectedBatch,
)
from millrace_server.log.epochs import EPOCHS_NAME, FIRST_EPOCH, EpochStart, EpochTable
from millrace_server.log.offset_gaps import GAPS_NAME
from millrace_simulation.disk import FaultyDisk
from tests.server.log.log_model import DIRECTORY, append, fetch, read_all

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)


def table(*entries: tuple[int, int]) -> EpochTable:
    return EpochTable(tuple(EpochStart(*entry) for entry in entries))


def from_leader(value: bytes, offset: int, epoch: int, *, producer: int = -1) -> bytes:
    """A batch of one record as a leader wrote it; `producer` numbers its batches by offset."""
    is_numbered = producer >= 0
    batch = encode_batch(
        [value],
        timestamps_ms=1000,
        producer_id=producer,
        producer_epoch=0 if is_numbered else -1,
        base_sequence=offset if is_numbered else -1,
    )
    assign(batch, base_offset=offset, leader_epoch=epoch)
    return bytes(batch)


def log_of(*epochs: int, disk: FaultyDisk | None = None) -> tuple[FaultyDisk, PartitionLog]:
    """A log with one record of each epoch, in order, all durable."""
    disk = disk or FaultyDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    for offset, epoch in enumerate(epochs):
        log.append_as_follower(from_leader(b"%d" % offset, offset, epoch), now_ms=1)
    log.flush()
    return disk, log


def values(log: PartitionLog) -> list[bytes | None]:
    return [value for _, _, value in read_all(log)]


def reopened(disk: FaultyDisk) -> PartitionLog:
    return PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)


def test_an_epoch_without_a_record_is_not_written_again_after_a_restart() -> None:
    disk, log = log_of(0, 0)
    log.begin_epoch(3)
    log.flush()
    for left in (disk.after_kill(), disk.after_power_cut(random.Random(1))):
        again = reopened(left)
        assert (again.leader_epoch, again.durable_epoch) == (3, 3)
        assert again.end_offset_for_epoch(3) == EpochEnd(3, 2)
        assert again.end_offset_for_epoch(2) == EpochEnd(0, 2)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (-1, None),
        (1, None),
        (2, EpochEnd(2, 10)),
        (3, EpochEnd(2, 10)),
        (4, EpochEnd(2, 10)),
        (5, EpochEnd(5, 20)),
        (6, EpochEnd(5, 20)),
        (7, EpochEnd(7, 33)),
        (9, EpochEnd(7, 33)),
    ],
)
def test_the_answer_is_the_largest_epoch_not_above_the_one_asked_for_and_its_end(
    asked: int, expected: EpochEnd | None
) -> None:
    assert table((2, 0), (5, 10), (7, 20)).end_offset_for(asked, log_end=33) == expected


def test_an_epoch_without_records_gives_way_to_the_next() -> None:
    assert table((0, 0)).begin(3, 5).begin(4, 5) == table((0, 0), (4, 5))
    assert FIRST_EPOCH.begin(2, 0) == table((2, 0))


@pytest.mark.parametrize("cut", [False, True])
def test_epochs_without_a_record_are_forgotten_durably(cut: bool) -> None:
    disk, log = log_of(0, 2)
    log.begin_epoch(5)
    log.flush()
    assert log.forget_unused_epochs()
    log.flush()
    assert log.durable_epoch == 2
    assert not log.forget_unused_epochs()
    log.append_as_follower(from_leader(b"new", 2, 3), now_ms=1)
    left = disk.after_power_cut(random.Random(1)) if cut else disk.after_kill()
    again = reopened(left)
    assert again.leader_epoch in ((2, 3) if cut else (3,))
    assert again.end_offset_for_epoch(5) == EpochEnd(again.leader_epoch, again.end_offset)


def test_log_that_begins_anew_forgets_the_epochs_of_deleted_records() -> None:
    _, log = log_of(0, 2)
    log.advance_start(2, high_watermark=2)
    log.flush()
    assert not log.forget_unused_epochs()
    assert log.epochs.epoch_before(2) == 2
    assert log.forget_unused_epochs(is_anew=True)
    assert log.leader_epoch == 0
    log.append_as_follower(from_leader(b"of another history", 2, 1), now_ms=1)
    assert log.end_offset_for_epoch(9) == EpochEnd(1, 3)


def test_an_epoch_never_goes_back() -> None:
    with pytest.raises(ValueError, match="older"):
        table((0, 0), (4, 5)).begin(3, 9)


def test_truncation_and_retention_keep_the_epochs_that_have_records() -> None:
    whole = table((0, 0), (2, 10), (3, 20))
    assert whole.truncate_to(20) == table((0, 0), (2, 10))
    assert whole.truncate_to(21) == whole
    assert whole.trim_to(9) == whole
    assert whole.trim_to(10) == table((2, 10), (3, 20))
    assert whole.trim_to(500) == table((3, 20))


EPOCHS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**62)), max_size=8)


@given(EPOCHS)
def test_a_table_is_read_as_it_was_written_and_no_changed_bit_goes_unnoticed(
    entries: list[tuple[int, int]],
) -> None:
    epochs = sorted({epoch for epoch, _ in entries})
    offsets = sorted({offset for _, offset in entries})
    made = table(*zip(epochs, offsets, strict=False))
    data = made.encode()
    assert EpochTable.decode(data) == made
    assert EpochTable.decode(data[:-1]) is None
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert EpochTable.decode(bytes(changed)) is None


def test_append_stamps_the_epoch_that_the_leader_began() -> None:
    log = PartitionLog.create(FaultyDisk(), DIRECTORY, CONFIG)
    append(log, [b"a"])
    log.begin_epoch(4)
    append(log, [b"b", b"c"])
    read = log.reader.read(1, max_bytes=1000, end_offset=3).slice
    assert read is not None
    assert int.from_bytes(read.file.pread(4, read.position + 12), "big") == 4
    read.release()
    assert log.end_offset_for_epoch(0) == EpochEnd(0, 1)
    assert log.end_offset_for_epoch(4) == EpochEnd(4, 3)


def test_an_epoch_counts_as_begun_when_it_is_on_the_disk() -> None:
    disk, log = log_of(0, 0)
    log.begin_epoch(3)
    assert (log.leader_epoch, log.durable_epoch) == (3, 0)
    log.flush()
    assert log.durable_epoch == 3
    cut = disk.after_power_cut(random.Random(1))
    file = cut.open(f"{DIRECTORY}/{EPOCHS_NAME}")
    assert EpochTable.decode(file.pread(1000, 0)) == table((0, 0), (3, 2))
    file.release()


@pytest.mark.parametrize("seed", range(30))
def test_no_power_cut_takes_the_epochs_of_durable_records(seed: int) -> None:
    disk, log = log_of(0, 0, 2, 2, 5)
    wanted = [log.end_offset_for_epoch(epoch) for epoch in (0, 2)]
    log.append_as_follower(from_leader(b"5", 5, 6), now_ms=1)
    again = reopened(disk.after_power_cut(random.Random(seed)))
    assert [again.end_offset_for_epoch(epoch) for epoch in (0, 2)] == wanted
    assert again.leader_epoch == (6 if again.end_offset == 6 else 5)


@pytest.mark.parametrize("content", [None, b"", b"MREP" + bytes(20)])
@pytest.mark.parametrize("is_checkpoint_there", [True, False])
def test_a_table_that_is_missing_or_broken_is_made_of_the_batches(
    content: bytes | None, is_checkpoint_there: bool
) -> None:
    disk, log = log_of(0, 0, 0, 0, 2, 2, 2, 5, 5, 5, 5, 5)
    log.close()
    disk.remove(f"{DIRECTORY}/{EPOCHS_NAME}")
    if content is not None:
        file = disk.open(f"{DIRECTORY}/{EPOCHS_NAME}", create=True, write=True)
        file.pwrite(content, 0)
        file.release()
    if not is_checkpoint_there:
        disk.remove(f"{DIRECTORY}/checkpoint")
    again = reopened(disk)
    assert again.segment_count >= 3
    assert [again.end_offset_for_epoch(epoch) for epoch in (0, 2, 5)] == [
        EpochEnd(0, 4),
        EpochEnd(2, 7),
        EpochEnd(5, 12),
    ]
    assert again.durable_epoch == 5


def test_a_follower_keeps_offsets_epochs_and_bytes_of_its_leader() -> None:
    _, leader = log_of(0, 0, 3)
    copy = PartitionLog.create(FaultyDisk(), DIRECTORY, CONFIG)
    while copy.end_offset < leader.end_offset:
        read = leader.reader.read(copy.end_offset, max_bytes=1000, end_offset=leader.end_offset)
        assert read.slice is not None
        copy.append_as_follower(read.slice.read(), now_ms=1)
        read.slice.release()
    assert read_all(copy) == read_all(leader)
    assert copy.end_offset_for_epoch(0) == leader.end_offset_for_epoch(0) == EpochEnd(0, 2)
    assert copy.leader_epoch == 3


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        ([(2, 1), (2, 1)], UnexpectedBatch),
        ([(1, 1)], UnexpectedBatch),
        ([(2**31 + 2, 1)], UnexpectedBatch),
        ([(4, 1), (3, 1)], UnexpectedBatch),
        ([(2, 0)], UnexpectedBatch),
        ([(2, 2), (3, 1)], UnexpectedBatch),
    ],
)
def test_batches_that_do_not_continue_the_followers_log_change_nothing(
    batches: list[tuple[int, int]], error: type[Exception]
) -> None:
    _, log = log_of(0, 1)
    with pytest.raises(error):
        log.append_as_follower(
            b"".join(from_leader(b"x", offset, epoch) for offset, epoch in batches), now_ms=1
        )
    assert values(log) == [b"0", b"1"]
    assert log.leader_epoch == 1


def test_a_batch_that_changed_on_its_way_to_the_follower_changes_nothing() -> None:
    _, log = log_of(0)
    batch = bytearray(from_leader(b"x", 1, 0))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append_as_follower(from_leader(b"y", 1, 0) + bytes(batch), now_ms=1)
    assert values(log) == [b"0"]


def test_a_follower_recognises_what_a_producer_repeats_once_it_leads() -> None:
    _, log = log_of()
    for n in range(3):
        batch = from_leader(b"%d" % n, n, 0, producer=9)
        log.append_as_follower(batch, now_ms=1)
    log.begin_epoch(1)
    repeated = append(log, [b"2"], producer_id=9, producer_epoch=0, base_sequence=2)
    assert repeated == (2, 2, -1, True)


@pytest.mark.parametrize("end", range(9))
def test_truncation_leaves_the_records_before_the_offset_and_the_log_goes_on(end: int) -> None:
    disk, log = log_of(*range(8))
    held = log.reader.read(7, max_bytes=1000, end_offset=8).slice
    assert held is not None
    before = held.file.pread(held.size, held.position)
    log.truncate_to(end, high_watermark=0, now_ms=1)
    kept = [b"%d" % n for n in range(min(end, 8))]
    assert values(log) == kept
    assert log.durable_offset == log.end_offset == len(kept)
    assert held.file.pread(held.size, held.position) == before, "a reader keeps what it has"
    held.release()
    assert log.leader_epoch == max(0, len(kept) - 1)
    log.append_as_follower(from_leader(b"new", len(kept), 20), now_ms=1)
    log.flush()
    assert values(log) == [*kept, b"new"]
    for again in (reopened(disk.after_power_cut(random.Random(end))), reopened(disk)):
        assert values(again) == [*kept, b"new"]
        assert again.leader_epoch == 20
        again.close()
        assert values(reopened(disk)) == [*kept, b"new"]


def test_truncation_inside_a_batch_takes_the_whole_batch() -> None:
    log = PartitionLog.create(FaultyDisk(), DIRECTORY, CONFIG)
    append(log, [b"a"])
    append(log, [b"b", b"c", b"d"])
    assert log.truncate_to(3, high_watermark=1, now_ms=1) == 1
    assert values(log) == [b"a"]


def test_nothing_below_the_high_watermark_or_the_start_is_truncated() -> None:
    _, log = log_of(*[0] * 8)
    with pytest.raises(OffsetOutOfRange):
        log.truncate_to(3, high_watermark=4, now_ms=1)
    assert len(values(log)) == 8


def test_a_producer_whose_last_batches_were_truncated_goes_on_from_its_earlier_ones() -> None:
    log = PartitionLog.create(FaultyDisk(), DIRECTORY, CONFIG)
    for n in range(12):
        append(log, [b"%d" % n], producer_id=9, producer_epoch=0, base_sequence=n)
        append(log, [b"other"], producer_id=8, producer_epoch=0, base_sequence=n)
    log.truncate_to(6, high_watermark=0, now_ms=1)
    assert append(log, [b"2"], producer_id=9, producer_epoch=0, base_sequence=2).duplicate
    with pytest.raises(OutOfOrderSequence):
        append(log, [b"x"], producer_id=9, producer_epoch=0, base_sequence=11)
    assert append(log, [b"3"], producer_id=9, producer_epoch=0, base_sequence=3).base_offset == 6


def test_a_producer_that_began_behind_the_cut_is_new_again() -> None:
    log = PartitionLog.create(FaultyDisk(), DIRECTORY, CONFIG)
    append(log, [b"a"])
    append(log, [b"b"], producer_id=9, producer_epoch=0, base_sequence=0)
    log.truncate_to(1, high_watermark=0, now_ms=1)
    assert append(log, [b"b"], producer_id=9, producer_epoch=0, base_sequence=0) == (
        1,
        1,
        -1,
        False,
    )


def test_retention_trims_the_table() -> None:
    config = LogConfig(segment_bytes=100, retention_bytes=200)
    log = PartitionLog.create(FaultyDisk(), DIRECTORY, config)
    for epoch in range(6):
        log.append_as_follower(from_leader(b"x" * 60, epoch, epoch), now_ms=1)
        log.flush()
    log.retention(1, high_watermark=6)
    assert log.start_offset > 2
    assert log.end_offset_for_epoch(0) is None
    assert log.end_offset_for_epoch(5) == EpochEnd(5, 6)


def truncation_offset(leader: PartitionLog, follower: PartitionLog) -> int:
    """Where a follower truncates to: it asks the leader until both have the same epoch."""
    asked = follower.leader_epoch
    while True:
        answer = leader.end_offset_for_epoch(asked)
        if answer is None:
            return 0
        own = follower.end_offset_for_epoch(answer.epoch)
        if own is None:
            return 0
        if own.epoch == answer.epoch:
            return min(own.end_offset, answer.end_offset)
        asked = own.epoch


@pytest.mark.parametrize(
    ("leader", "follower", "agreed"),
    [
        # KAFKA-1211: the follower's tail is of an older leader, and its high watermark is stale.
        ((0, 0, 1), (0, 0, 0, 0), 2),
        # KAFKA-6361: two failovers in a row; epoch 1 was never at the leader.
        ((0, 0, 2, 2), (0, 0, 1, 1), 2),
        ((0, 0, 2, 3), (0, 1, 1, 1, 1), 1),
        # KAFKA-7164: the same leader, one election later.
        ((0, 1, 2), (0, 1, 1, 1), 2),
        ((0, 0), (0, 0), 2),
    ],
)
def test_a_follower_that_truncates_by_epochs_becomes_what_the_leader_is(
    leader: tuple[int, ...], follower: tuple[int, ...], agreed: int
) -> None:
    _, led = log_of(*leader)
    _, own = log_of(*follower)
    assert truncation_offset(led, own) == agreed
    own.truncate_to(agreed, high_watermark=0, now_ms=1)
    while own.end_offset < led.end_offset:
        read = led.reader.read(own.end_offset, max_bytes=1000, end_offset=led.end_offset).slice
        assert read is not None
        own.append_as_follower(read.read(), now_ms=1)
        read.release()
    assert fetch(own, 0) == fetch(led, 0)
    assert own.leader_epoch == led.leader_epoch


def follower_with_gaps(*offsets: int, disk: FaultyDisk | None = None) -> PartitionLog:
    """A follower's log with one record at each of these offsets."""
    log = PartitionLog.create(disk or FaultyDisk(), DIRECTORY, CONFIG)
    for offset in offsets:
        log.append_as_follower(from_leader(b"%d" % offset, offset, 0), now_ms=1)
    return log


GAPS = (0, 1, 5, 6, 20, 21, 22, 40)


def test_a_follower_takes_over_the_gaps_of_a_compacted_leader() -> None:
    disk = FaultyDisk()
    log = follower_with_gaps(*GAPS, disk=disk)
    assert log.segment_count == 2
    log.flush()
    for again in (log, reopened(disk.after_power_cut(random.Random(1)))):
        assert [offset for offset, _, _ in read_all(again, max_bytes=1)] == list(GAPS)
        assert again.end_offset == 41
        assert append(again, [b"next"]).base_offset == 41


@pytest.mark.parametrize("offset", range(41))
def test_a_read_from_within_a_gap_begins_behind_it(offset: int) -> None:
    log = follower_with_gaps(*GAPS)
    log.flush()
    read = log.reader.read(offset, max_bytes=1, end_offset=41)
    assert read.slice is not None
    first = int.from_bytes(read.slice.file.pread(8, read.slice.position), "big")
    read.slice.release()
    assert first == min(there for there in GAPS if there >= offset)
    assert read.next_offset == first + 1


@pytest.mark.parametrize("offset", range(42))
def test_truncation_within_a_gap_ends_the_log_behind_the_batch_before_it(offset: int) -> None:
    disk = FaultyDisk()
    log = follower_with_gaps(*GAPS, disk=disk)
    kept = [there for there in GAPS if there < offset]
    assert log.truncate_to(offset, high_watermark=0, now_ms=1) == max(kept, default=-1) + 1
    assert [there for there, _, _ in read_all(log)] == kept
    log.append_as_follower(from_leader(b"new", 50, 0), now_ms=1)
    log.flush()
    again = reopened(disk.after_power_cut(random.Random(offset)))
    assert [there for there, _, _ in read_all(again)] == [*kept, 50]


def test_a_gap_in_a_log_that_never_had_one_is_corrupt() -> None:
    disk = FaultyDisk()
    follower_with_gaps(*GAPS, disk=disk).flush()
    disk.remove(f"{DIRECTORY}/{GAPS_NAME}")
    with pytest.raises(CorruptLog, match=r"offset 2 is next|begins with 7"):
        reopened(disk)


@pytest.mark.parametrize("bit", range(20 * 8))
def test_a_file_of_gaps_that_is_broken_costs_no_record(bit: int) -> None:
    disk = FaultyDisk()
    follower_with_gaps(*GAPS, disk=disk).flush()
    disk.flip_bit(f"{DIRECTORY}/{GAPS_NAME}", bit // 8, bit % 8)
    assert [offset for offset, _, _ in read_all(reopened(disk))] == list(GAPS)


def test_segments_behind_the_last_gap_are_checked_for_gaps() -> None:
    disk = FaultyDisk()
    log = follower_with_gaps(0, 4, disk=disk)
    for offset in range(5, 12):
        log.append_as_follower(from_leader(b"%d" % offset, offset, 0), now_ms=1)
    log.flush()
    for opened in (log, reopened(disk)):
        assert [segment.is_dense for segment in opened._chain.segments][:1] == [False]
        assert opened._chain.active.is_dense


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_gap_that_cannot_be_written_down_is_not_taken_over(code: int) -> None:
    disk = FaultyDisk()
    log = follower_with_gaps(0, 1, disk=disk)
    disk.fail_at = {disk.operations: code}
    with pytest.raises(OSError):
        log.append_as_follower(from_leader(b"5", 5, 0), now_ms=1)
    assert values(log) == [b"0", b"1"]
    assert log.is_failed == (code == errno.EIO)
    if code == errno.ENOSPC:
        log.append_as_follower(from_leader(b"5", 5, 0), now_ms=1)
        assert values(log) == [b"0", b"1", b"5"]
