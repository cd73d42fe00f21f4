"""Reads of a log in which bits have changed: they are not given, and all other records are.

The sender of a slice has it checked, a read meets lengths and offsets, and the scrub reads all.
Each of them finds what has changed; from then on the log refuses it with a message.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_protocol.records import HEADER_SIZE, decode_fetch
from millrace_server.log import CorruptLog, CorruptRange, CorruptRecords, LogConfig, PartitionLog
from millrace_server.log.reading import CHECK_AHEAD_BYTES
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
from tests.server.log.log_model import DIRECTORY, append, read_all

BATCH_BYTES = size(f"{LAST}.log") // (COUNT - int(LAST))


@pytest.mark.parametrize("segment", [FIRST, "00000000000000000006", LAST])
@given(place=st.integers(0, 2**20), bit=st.integers(0, 7), max_bytes=st.integers(1, 1_500))
@settings(deadline=None, max_examples=60)
def test_whatever_byte_has_changed_is_not_given_and_the_rest_is(
    segment: str, place: int, bit: int, max_bytes: int
) -> None:
    name = f"{segment}.log"
    position = place % size(name)
    hurt = int(segment) + position // BATCH_BYTES
    disk = flipped(name, position, bit)
    before = disk.contents()
    try:
        log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
    except CorruptLog:
        assert segment == LAST
        assert position % BATCH_BYTES < HEADER_SIZE, "a header that the start looks at"
        assert disk.contents() == before
        return
    told: list[CorruptRange] = []
    log.reader.watch_corruption(told.append)
    got, refused = consume(log, max_bytes=max_bytes)
    if position % BATCH_BYTES in EPOCH_BYTES:
        assert (got, refused, told) == (RECORDS, [], [])
    else:
        (found,) = told
        assert [(r.offset, r.end_offset) for r in refused] == [(found.offset, found.end_offset)]
        assert (found.path, found.offset) == (f"{DIRECTORY}/{name}", hurt)
        # A length that has changed does not tell where the next batch begins, the index does.
        is_length = 8 <= position % BATCH_BYTES < 12
        assert found.end_offset - hurt <= (2 if is_length else 1)
        assert got == [r for r in RECORDS if not found.offset <= r[0] < found.end_offset]
    # The second time it is known.
    assert consume(log, max_bytes=max_bytes) == (got, refused)
    assert len(told) <= 1
    for record in RECORDS:
        if not any(r.offset <= record[0] < r.end_offset for r in refused):
            assert read_checked(log, record[0], max_bytes=1)[0][0] == record
        else:
            with pytest.raises(CorruptRecords, match=f"seek to offset {refused[0].end_offset}"):
                log.reader.read(record[0], max_bytes=1, end_offset=COUNT)
    assert append(log, [b"next"]).base_offset == COUNT
    log.discard()
    after = disk.contents()
    del before[f"{DIRECTORY}/{LAST}.log"], after[f"{DIRECTORY}/{LAST}.log"]
    assert {k: v for k, v in after.items() if k in before} == before, "the evidence is kept"
    assert disk.open_files == []


def consume(
    log: PartitionLog, *, max_bytes: int
) -> tuple[list[tuple[int, int, bytes]], list[CorruptRange]]:
    """Reads all as a consumer does that goes on behind what is refused."""
    got: list[tuple[int, int, bytes]] = []
    refused: list[CorruptRange] = []
    offset = 0
    for _ in range(4 * COUNT):
        if offset == COUNT:
            return got, refused
        try:
            records, offset = read_checked(log, offset, max_bytes=max_bytes)
            got += records
        except CorruptRecords as error:
            refused.append(error.corrupt_range)
            offset = error.corrupt_range.end_offset
        except CorruptLog:
            # The connection ends; the consumer connects again and asks for the same.
            continue
    raise AssertionError(f"no progress at offset {offset}")


def read_checked(
    log: PartitionLog, offset: int, *, max_bytes: int
) -> tuple[list[tuple[int, int, bytes]], int]:
    """Reads as a connection does: nothing leaves that was not checked."""
    read = log.reader.read(offset, max_bytes=max_bytes, end_offset=COUNT)
    part = read.slice
    assert part is not None
    end = part.position + part.size
    try:
        if not part.source.is_checked(part.position, end):
            assert part.source.check(part.file, part.position, end) >= end
            part.source.note_checked(is_first_page_new=False)
            assert part.source.is_checked(part.position, end)
        data = part.file.pread(part.size, part.position)
    except CorruptLog as error:
        part.source.note_failure(error)
        raise
    finally:
        part.release()
    found: list[tuple[int, int, bytes]] = []
    for records, next_offset in decode_fetch(data):
        found += [(r[0], r[1], r[3] or b"") for r in records if r[0] >= offset]
        reached = next_offset
    assert reached == read.next_offset
    return found, reached


@given(places=st.sets(st.integers(0, size(f"{FIRST}.log") - 1), min_size=2, max_size=12))
@settings(deadline=None, max_examples=60)
def test_however_much_has_changed_nothing_wrong_is_given(places: set[int]) -> None:
    disk = flipped(f"{FIRST}.log", 0, 0)
    for position in {0} ^ places:
        disk.flip_bit(f"{DIRECTORY}/{FIRST}.log", position, position % 8)
    log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
    told: list[CorruptRange] = []
    log.reader.watch_corruption(told.append)
    got, refused = consume(log, max_bytes=400)
    assert set(got) <= set(RECORDS)
    assert got == sorted(got)
    missing = {offset for found in refused for offset in range(found.offset, found.end_offset)}
    assert {record[0] for record in got} | missing == set(range(COUNT))
    assert not {record[0] for record in got} & missing
    assert max(missing, default=0) < 6, "the other segments are whole"
    log.discard()


def test_what_the_scrub_finds_is_refused_before_anybody_reads_it() -> None:
    name = f"{FIRST}.log"
    disk = flipped(name, 2 * BATCH_BYTES + 100, 3)
    disk.flip_bit(f"{DIRECTORY}/{LAST}.log", 40, 1)
    log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
    told: list[CorruptRange] = []
    log.reader.watch_corruption(told.append)
    looked_at = 0
    for segment in log.reader.durable_segments():
        file = disk.open(segment.path)
        while not segment.is_done:
            try:
                segment.check(file, 100)
            except CorruptLog as error:
                segment.skip(error)
        looked_at += segment.position
        file.release()
    assert looked_at == log.size_bytes
    assert [(r.offset, r.end_offset) for r in told] == [(2, 3), (int(LAST), int(LAST) + 1)]
    for offset in (2, int(LAST)):
        with pytest.raises(CorruptRecords):
            log.reader.read(offset, max_bytes=1, end_offset=COUNT)
    got, refused = consume(log, max_bytes=1_000)
    assert (len(got), refused) == (COUNT - 2, told)
    log.discard()


def test_what_is_appended_counts_as_checked_and_what_was_there_does_not() -> None:
    log = PartitionLog.open(flipped(f"{LAST}.log", 13, 0), DIRECTORY, CONFIG, now_ms=1)
    read_all(log)
    append(log, [b"next"])
    for offset, known in ((COUNT, True), (0, False), (COUNT - 1, False)):
        part = log.reader.read(offset, max_bytes=1_000, end_offset=COUNT + 1).slice
        assert part is not None
        assert part.source.is_checked(part.position, part.position + part.size) is known
        part.release()
    log.discard()


def test_who_reads_in_small_pieces_has_them_checked_in_large_ones() -> None:
    disk = MomentDisk()
    log = PartitionLog.create(disk, DIRECTORY, LogConfig())
    size_bytes = LogConfig().index_interval_bytes
    count = 2 * CHECK_AHEAD_BYTES // size_bytes
    for number in range(count):
        append(log, [b"v" * size_bytes], timestamps_ms=number)
    log.close()
    log = PartitionLog.open(disk, DIRECTORY, LogConfig(), now_ms=1)
    checks = 0
    for offset in range(count):
        part = log.reader.read(offset, max_bytes=size_bytes + 100, end_offset=count).slice
        assert part is not None
        end = part.position + part.size
        if not part.source.is_checked(part.position, end):
            checks += 1
            part.source.check(part.file, part.position, end)
            part.source.note_checked(is_first_page_new=True)
        part.release()
    assert checks == 3
    log.discard()
