"""A partition's log on a real disk: append, roll, read, idempotence, retention."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace_protocol.records import (
    BatchTooLarge,
    check_batch,
    decode_records,
    encode_batch,
    read_header,
)
from millrace_server.disk.os_disk import OsDisk
from millrace_server.log import (
    FencedProducer,
    LogClosed,
    LogConfig,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionLog,
    UnknownProducer,
    durability,
)
from millrace_server.log.producers import PRODUCERS_MAX, Producers
from tests.server.log.log_model import DIRECTORY, append, fetch, read_all
from tests.server.log.times import first_at_or_after, newest


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path / "data")


def create(disk: OsDisk, **config: object) -> PartitionLog:
    return PartitionLog.create(disk, DIRECTORY, LogConfig(**config))  # type: ignore[arg-type]


def is_due(log: PartitionLog) -> bool:
    """Asked anew each time, which a type checker does not expect of a property."""
    return log.is_flush_due


def raw(log: PartitionLog, offset: int) -> bytes:
    part = log.reader.read(offset, max_bytes=1, end_offset=log.end_offset).slice
    assert part is not None
    try:
        return part.file.pread(part.size, part.position)
    finally:
        part.release()


def test_offsets_and_epoch_are_written_into_the_batch_and_its_crc_stays_right(
    disk: OsDisk,
) -> None:
    log = create(disk)
    append(log, [b"a", b"b"], leader_epoch=3)
    appended = append(log, [b"c", b"d", b"e"], leader_epoch=4)
    assert appended == (2, 4, -1, False)
    header = check_batch(raw(log, 3))
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (2, 4, 4)


def test_a_batch_can_be_appended_from_a_slice_of_a_frame(disk: OsDisk) -> None:
    log = create(disk)
    batch = encode_batch([b"value"], timestamps_ms=1)
    frame = bytearray(b"frame " + batch + b" rest")
    view = memoryview(frame)[6 : 6 + len(batch)]
    log.append(view, read_header(view), now_ms=1)
    assert decode_records(raw(log, 0)) == [(0, 1, None, b"value", ())]


def test_log_append_time_is_stamped_and_sealed(disk: OsDisk) -> None:
    log = create(disk, timestamp_type="LogAppendTime")
    assert append(log, [b"a", b"b"], timestamps_ms=[5, 9], now_ms=7777).log_append_time_ms == 7777
    assert [record[1] for record in decode_records(raw(log, 0))] == [7777, 7777]
    assert first_at_or_after(log, 7000, end_offset=2) == (7777, 0)
    assert newest(log, end_offset=2) == (7777, 0)


def test_a_batch_over_the_limit_is_refused_and_changes_nothing(disk: OsDisk) -> None:
    log = create(disk, max_message_bytes=100)
    with pytest.raises(BatchTooLarge):
        append(log, [b"x" * 100])
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_a_segment_rolls_by_size_before_the_batch_that_would_not_fit(disk: OsDisk) -> None:
    size = len(encode_batch([b"x" * 100], timestamps_ms=0))
    log = create(disk, segment_bytes=size * 3)
    for _ in range(7):
        append(log, [b"x" * 100])
    assert log.segment_count == 3
    assert [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")] == [
        f"{base:020d}.log" for base in (0, 3, 6)
    ]


def test_a_segment_rolls_by_the_age_of_its_first_record(disk: OsDisk) -> None:
    log = create(disk, segment_ms=1000)
    append(log, [b"a"], timestamps_ms=50_000, now_ms=1)
    append(log, [b"b"], timestamps_ms=51_000, now_ms=10**9)
    assert log.segment_count == 1
    append(log, [b"c"], timestamps_ms=51_001, now_ms=2)
    assert log.segment_count == 2


def test_records_without_timestamps_age_by_the_clock_of_the_broker(disk: OsDisk) -> None:
    log = create(disk, segment_ms=1000)
    append(log, [b"a"], timestamps_ms=-1, now_ms=50_000)
    append(log, [b"b"], timestamps_ms=-1, now_ms=51_000)
    assert log.segment_count == 1
    append(log, [b"c"], timestamps_ms=-1, now_ms=51_001)
    assert log.segment_count == 2


def test_the_age_of_the_active_segment_survives_a_restart(disk: OsDisk) -> None:
    log = create(disk, segment_ms=1000)
    append(log, [b"a"], timestamps_ms=50_000)
    log.close()
    log = PartitionLog.open(disk, DIRECTORY, LogConfig(segment_ms=1000), now_ms=0)
    append(log, [b"b"], timestamps_ms=51_001)
    assert log.segment_count == 2


def test_a_segment_rolls_before_a_relative_offset_overflows(disk: OsDisk) -> None:
    log = create(disk)
    for _ in range(3):
        batch = encode_batch([b"x"], timestamps_ms=0)
        header = read_header(batch)
        # A batch of two thousand million offsets, as compaction may leave behind.
        header.last_offset_delta = 2**31 - 1
        batch[23:27] = (2**31 - 1).to_bytes(4, "big")
        log.append(batch, header, now_ms=0)
    assert log.segment_count == 3
    assert log.end_offset == 3 * 2**31


@pytest.mark.parametrize("segment_bytes", [900, 10**6])
@pytest.mark.parametrize("index_interval_bytes", [0, 500, 4096])
@pytest.mark.parametrize("max_bytes", [1, 150, 151, 1000, 5000, 10**6])
def test_every_offset_can_be_read_with_every_limit(
    disk: OsDisk, segment_bytes: int, index_interval_bytes: int, max_bytes: int
) -> None:
    log = create(disk, segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    for number in range(20):
        append(log, [b"%d" % number] * (1 + number * 7 % 5), timestamps_ms=number)
    boundaries = [0]
    while boundaries[-1] < log.end_offset:
        boundaries.append(fetch(log, boundaries[-1], max_bytes=1)[1])
    everything = read_all(log)
    for offset in range(log.end_offset):
        for end_offset in (boundaries[-1], boundaries[7], boundaries[1]):
            records, reached = fetch(log, offset, max_bytes=max_bytes, end_offset=end_offset)
            assert records == everything[offset:reached]
            if offset >= end_offset:
                assert (records, reached) == ([], offset)
                continue
            assert reached in boundaries
            assert offset < reached <= end_offset
            part = log.reader.read(offset, max_bytes=max_bytes, end_offset=end_offset).slice
            assert part is not None
            part.release()
            is_one_batch = reached == min(b for b in boundaries if b > offset)
            assert part.size <= max_bytes or is_one_batch


def test_a_small_limit_is_filled_as_far_as_whole_batches_allow(disk: OsDisk) -> None:
    size = len(encode_batch([b"x"], timestamps_ms=0))
    log = create(disk)
    for _ in range(10):
        append(log, [b"x"])
    read = log.reader.read(2, max_bytes=3 * size + 5, end_offset=10)
    assert read.slice is not None
    assert (read.slice.position, read.slice.size, read.next_offset) == (2 * size, 3 * size, 5)
    read.slice.release()


def test_an_offset_outside_the_log_is_refused_with_the_range(disk: OsDisk) -> None:
    log = create(disk)
    append(log, [b"a", b"b"])
    with pytest.raises(OffsetOutOfRange, match="reaches from 0 to 2"):
        log.reader.read(3, max_bytes=1, end_offset=2)
    with pytest.raises(OffsetOutOfRange):
        log.reader.read(-1, max_bytes=1, end_offset=2)
    assert log.reader.read(2, max_bytes=1, end_offset=2) == (None, 2)
    assert log.reader.read(1, max_bytes=1, end_offset=0) == (None, 1)


def test_a_read_never_reaches_into_preallocated_space(disk: OsDisk) -> None:
    log = create(disk)
    for _ in range(20):
        append(log, [b"x" * 10_000])
    log.flush()
    path = disk.root / DIRECTORY / f"{0:020d}.log"
    reserved = log.size_bytes + 1024 * 1024
    assert path.stat().st_size == reserved
    append(log, [b"y"])
    log.flush()
    assert path.stat().st_size == reserved, "there is enough"
    assert len(read_all(log, max_bytes=10**9)) == 21
    append(log, [b"z"])
    assert read_all(log, max_bytes=10**9)[-1] == (21, 1000, b"z")
    log.close()
    assert path.stat().st_size == log.size_bytes


def test_the_page_cache_needs_no_flush_to_reserve_space(disk: OsDisk) -> None:
    log = create(disk, durability="os")
    for _ in range(8):
        append(log, [b"x" * 10_000])
    path = disk.root / DIRECTORY / f"{0:020d}.log"
    assert path.stat().st_size > 1024 * 1024
    assert log.durable_offset == 0 and not is_due(log)
    assert len(read_all(log, max_bytes=10**9)) == 8
    log.close()
    assert path.stat().st_size == log.size_bytes


def test_a_rolled_segment_gives_its_preallocated_space_back(disk: OsDisk) -> None:
    log = create(disk, segment_bytes=300_000)
    for _ in range(40):
        append(log, [b"x" * 10_000])
        log.flush()
    log.flush()
    path = disk.root / DIRECTORY / f"{0:020d}.log"
    assert path.stat().st_size < 300_000
    assert path.stat().st_size == sum(
        len(encode_batch([b"x" * 10_000], timestamps_ms=1000)) for _ in range(29)
    )


def test_many_closed_segments_keep_few_files_open(disk: OsDisk) -> None:
    log = create(disk, segment_bytes=200, index_interval_bytes=0)
    for _ in range(50):
        append(log, [b"x" * 100])
    log.flush()
    assert log.segment_count == 50
    assert len(read_all(log)) == 50
    held = [path for path in Path("/proc/self/fd").iterdir() if _is_below(path, disk.root)]
    assert 1 <= len(held) <= 6


def _is_below(link: Path, root: Path) -> bool:
    try:
        return str(link.readlink()).startswith(str(root.resolve()))
    except FileNotFoundError:
        return False


def test_a_closed_log_says_so(disk: OsDisk) -> None:
    log = create(disk)
    append(log, [b"a"])
    log.close()
    log.close()
    with pytest.raises(LogClosed, match="open it again"):
        append(log, [b"b"])
    with pytest.raises(LogClosed):
        log.reader.read(0, max_bytes=1, end_offset=1)
    assert not log.is_failed


def test_durable_follows_the_flush_and_not_what_came_after_its_begin(disk: OsDisk) -> None:
    log = create(disk)
    assert log.begin_flush() is None
    append(log, [b"a"])
    ticket = log.begin_flush()
    assert ticket is not None
    append(log, [b"b"])
    with pytest.raises(RuntimeError, match="in flight"):
        log.begin_flush()
    ticket.sync()
    assert log.durable_offset == 0
    log.finish_flush(ticket)
    log.finish_settle(ticket)
    assert (log.durable_offset, log.end_offset) == (1, 2)
    assert read_all(log, end_offset=log.durable_offset) == [(0, 1000, b"a")]


# Idempotent producers


def send(log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0) -> object:
    return append(log, [b"v"] * count, producer_id=9, producer_epoch=epoch, base_sequence=sequence)


def test_any_of_the_last_five_batches_is_recognised_when_sent_again(disk: OsDisk) -> None:
    log = create(disk)
    sent = [send(log, sequence, 2) for sequence in range(0, 20, 2)]
    for index in range(5, 10):
        assert send(log, index * 2, 2) == (index * 2, index * 2 + 1, -1, True)
    assert log.end_offset == 20
    assert sent[9] == (18, 19, -1, False)
    with pytest.raises(OutOfOrderSequence, match="sequence 8 and 20 is next"):
        send(log, 8, 2)


def test_a_gap_in_the_sequence_is_refused(disk: OsDisk) -> None:
    log = create(disk)
    send(log, 0)
    with pytest.raises(OutOfOrderSequence, match="sequence 2 and 1 is next"):
        send(log, 2)
    with pytest.raises(OutOfOrderSequence):
        send(log, 0, 2)
    assert send(log, 1) == (1, 1, -1, False)


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero(disk: OsDisk) -> None:
    log = create(disk)
    send(log, 0, epoch=1)
    with pytest.raises(FencedProducer, match="epoch 0 and epoch 1 has written"):
        send(log, 1, epoch=0)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, epoch=2)
    assert send(log, 0, epoch=2) == (1, 1, -1, False)
    with pytest.raises(FencedProducer):
        send(log, 0, epoch=1)


def test_a_producer_that_is_not_known_may_be_asked_to_start_at_zero(disk: OsDisk) -> None:
    log = create(disk)

    def check_begin(sequence: int) -> None:
        batch = encode_batch(
            [b"v"], timestamps_ms=0, producer_id=9, producer_epoch=0, base_sequence=sequence
        )
        log.producers.check_begin(read_header(batch))

    with pytest.raises(UnknownProducer, match="start at sequence 0"):
        check_begin(5)
    check_begin(0)
    send(log, 0)
    check_begin(1)
    assert log.producers.expire(1000 + 86_400_000, silent_ms=86_400_000) == 0
    assert log.producers.expire(1001 + 86_400_000, silent_ms=86_400_000) == 1
    with pytest.raises(UnknownProducer):
        check_begin(1)


def test_a_producer_that_is_not_known_may_go_on_anywhere(disk: OsDisk) -> None:
    log = create(disk)
    assert send(log, 5) == (0, 0, -1, False)
    assert send(log, 5) == (0, 0, -1, True)
    assert send(log, 6) == (1, 1, -1, False)
    with pytest.raises(OutOfOrderSequence):
        send(log, 4)


def test_sequences_wrap_from_the_largest_to_zero(disk: OsDisk) -> None:
    log = create(disk)
    header = read_header(
        encode_batch([b"v"], timestamps_ms=0, producer_id=9, producer_epoch=0, base_sequence=0)
    )
    header.base_sequence = 2**31 - 3
    log._state.producers.note(header, base_offset=0, log_append_time_ms=-1, now_ms=0)
    send(log, 2**31 - 2, 3)
    assert send(log, 2**31 - 2, 3) == (0, 2, -1, True)
    assert send(log, 1) == (3, 3, -1, False)


@pytest.mark.parametrize("ending", ["closed", "flushed", "killed"])
def test_a_retry_after_a_restart_is_recognised(disk: OsDisk, ending: str) -> None:
    log = create(disk)
    for sequence in range(7):
        send(log, sequence)
    if ending == "closed":
        log.close()
    elif ending == "flushed":
        log.flush(checkpoint=True)
        log.discard()
    else:
        log.flush()
        log.discard()
    log = PartitionLog.open(disk, DIRECTORY, LogConfig(), now_ms=0)
    for sequence in range(2, 7):
        assert send(log, sequence) == (sequence, sequence, -1, True)
    assert send(log, 7) == (7, 7, -1, False)


def test_the_number_of_producers_is_bounded_by_forgetting_the_longest_silent() -> None:
    producers = Producers()
    header = read_header(
        encode_batch([b"v"], timestamps_ms=0, producer_id=0, producer_epoch=0, base_sequence=0)
    )
    for producer_id in range(PRODUCERS_MAX + 10):
        header.producer_id = producer_id
        producers.note(header, base_offset=producer_id, log_append_time_ms=-1, now_ms=0)
        header.producer_id = 3
        producers.note(header, base_offset=0, log_append_time_ms=-1, now_ms=0)
    assert len(producers) == PRODUCERS_MAX
    header.producer_id, header.base_sequence = 3, 1
    assert producers.check(header) is None
    header.producer_id = 0
    with pytest.raises(UnknownProducer):
        producers.check_begin(header)


# Retention


def filled(disk: OsDisk, **config: int) -> PartitionLog:
    """Ten segments of one record each, with timestamps 0 to 9000, and an active one."""
    log = create(disk, segment_bytes=100, **config)
    for number in range(11):
        append(log, [b"x" * 50], timestamps_ms=number * 1000)
    log.flush()
    assert log.segment_count == 11
    return log


def test_retention_by_time_takes_what_is_older_by_its_newest_record(disk: OsDisk) -> None:
    log = filled(disk, retention_ms=5000)
    assert len(log.retention(9000, high_watermark=11)) == 4
    assert log.start_offset == 4
    with pytest.raises(OffsetOutOfRange, match="reaches from 4 to 11"):
        log.reader.read(3, max_bytes=1, end_offset=11)
    assert [offset for offset, _, _ in read_all(log)] == list(range(4, 11))
    assert log.retention(10**9, high_watermark=11)
    assert log.start_offset == 10, "never the active segment"


def test_retention_by_size_keeps_at_least_what_it_promises(disk: OsDisk) -> None:
    log = filled(disk, retention_ms=-1, retention_bytes=500)
    log.retention(10**12, high_watermark=11)
    one = log.size_bytes // log.segment_count
    assert 500 <= log.size_bytes < 500 + one


@pytest.mark.parametrize("high_watermark", range(5, 12))
def test_records_that_may_be_truncated_take_the_place_of_none(
    disk: OsDisk, high_watermark: int
) -> None:
    log = filled(disk, retention_ms=-1, retention_bytes=300)
    one = log.size_bytes // log.segment_count
    log.retention(10**12, high_watermark=high_watermark)
    log.truncate_to(high_watermark, high_watermark=high_watermark, now_ms=1)
    assert 300 <= log.size_bytes < 300 + one


def test_records_in_the_midst_of_a_segment_that_may_be_truncated_do_not_count(
    disk: OsDisk,
) -> None:
    log = create(disk, segment_bytes=1000, index_interval_bytes=1, retention_bytes=1000)
    for _ in range(36):
        append(log, [b"x" * 50])
    log.flush()
    batch_bytes = log.size_bytes // 36
    needed = -(-1000 // batch_bytes)
    first_end = 1000 // batch_bytes
    log.retention(1, high_watermark=first_end + needed - 1)
    assert log.start_offset == 0
    log.retention(1, high_watermark=first_end + needed)
    assert log.start_offset == first_end


def test_retention_never_passes_the_high_watermark(disk: OsDisk) -> None:
    log = filled(disk, retention_ms=0)
    log.retention(10**12, high_watermark=3)
    assert log.start_offset == 3


@pytest.mark.parametrize("offset", range(12))
def test_the_start_of_a_log_can_be_anywhere_up_to_the_high_watermark(
    disk: OsDisk, offset: int
) -> None:
    log = create(disk, segment_bytes=300)
    for number in range(11):
        append(log, [b"x" * 50], timestamps_ms=9000 - number * 500)
    log.flush()
    whole, ends = read_all(log), [segment.end_offset for segment in log._chain.segments]
    assert len(ends) < 8
    log.advance_start(offset, high_watermark=11)
    log.advance_start(0, high_watermark=11)
    assert log.start_offset == offset
    log.flush()
    left = [n for n in disk.list_directory(DIRECTORY) if n.endswith(".log")]
    assert len(left) == log.segment_count == max(1, sum(end > offset for end in ends))
    for opened in (log, PartitionLog.open(disk, DIRECTORY, LogConfig(), now_ms=1)):
        assert opened.start_offset == offset
        assert read_all(opened) == [record for record in whole if record[0] >= offset]
        with pytest.raises(OffsetOutOfRange):
            opened.reader.read(offset - 1, max_bytes=1, end_offset=11)
        newest = max((time for there, time, _ in whole if there >= offset), default=-1)
        assert opened.reader.largest_timestamp(end_offset=11) == newest


def test_the_start_of_a_log_does_not_pass_the_high_watermark(disk: OsDisk) -> None:
    log = filled(disk)
    with pytest.raises(OffsetOutOfRange):
        log.advance_start(4, high_watermark=3)
    assert log.start_offset == 0


def test_segments_before_the_start_go_though_no_retention_is_set(disk: OsDisk) -> None:
    log = create(disk, segment_bytes=100, deletes=False, compacts=True)
    for _ in range(11):
        append(log, [b"x" * 50])
    log.advance_start(7, high_watermark=11)
    assert log.segment_count == 11, "none of them is durable"
    log.flush()
    assert len(log.retention(1, high_watermark=11)) == 7
    assert log.start_offset == 7


def test_no_retention_keeps_everything(disk: OsDisk) -> None:
    log = filled(disk, retention_ms=-1)
    assert log.retention(10**15, high_watermark=11) == []


def test_files_go_with_the_flush_and_a_reader_that_has_one_is_not_disturbed(disk: OsDisk) -> None:
    log = filled(disk, retention_ms=5000)
    part = log.reader.read(0, max_bytes=1, end_offset=11).slice
    assert part is not None
    log.retention(9000, high_watermark=11)
    path = disk.root / DIRECTORY / f"{0:020d}.log"
    assert path.exists(), "the new start is not written down yet"
    log.flush()
    assert not path.exists()
    assert decode_records(part.file.pread(part.size, part.position))[0][0] == 0
    part.release()
    log.discard()
    again = PartitionLog.open(disk, DIRECTORY, LogConfig(segment_bytes=100), now_ms=0)
    assert again.start_offset == 4


def test_a_checkpoint_is_due_after_so_many_batches(
    disk: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "CHECKPOINT_BATCHES", 5)
    log = create(disk)
    for number in range(5):
        assert not is_due(log)
        append(log, [b"%d" % number])
    assert is_due(log)
    log.flush()
    assert not is_due(log)
    append(log, [b"5"])
    log.discard()
    again = PartitionLog.open(disk, DIRECTORY, LogConfig(), now_ms=0)
    assert 0 < again.recovery.scanned_bytes < 100
    assert again.end_offset == 6


def test_a_setting_that_cannot_work_is_refused() -> None:
    for config in (
        {"segment_bytes": 0},
        {"segment_bytes": 2**31},
        {"segment_ms": 0},
        {"index_interval_bytes": -1},
        {"retention_ms": -2},
        {"max_message_bytes": -1},
    ):
        with pytest.raises(ValueError, match="choose"):
            LogConfig(**config)  # type: ignore[arg-type]
