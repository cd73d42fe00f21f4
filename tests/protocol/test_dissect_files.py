"""Segment and index files explained: batches, records, indexes, preallocated tails, damage."""

from __future__ import annotations

import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.dissect import (
    Limits,
    Span,
    base_offset_of,
    dissect,
    dissect_index,
    dissect_segment,
    dissect_time_index,
    render,
)
from millrace_protocol.records import BatchHeader, Codec, compress, seal
from millrace_protocol.spec.examples import EXAMPLES

PRODUCED = EXAMPLES["produce-request"][-109:]
FETCHED = EXAMPLES["fetch-response"][-109:]
RECORD = bytes.fromhex("10 00 00 00 02 6b 02 76 00")  # length 8, key "k", value "v"


def batch(payload: bytes, *, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    header = BatchHeader(
        7, 49 + len(payload), 0, 2, 0, codec, count - 1, 1000, 1000, -1, -1, -1, count
    )
    made = bytearray(header.pack() + payload)
    seal(made)
    return bytes(made)


def value(span: Span, name: str) -> object:
    found = span.find(name)
    assert found is not None, name
    return found.value


def test_a_segment_is_batches_back_to_back_and_a_preallocated_tail() -> None:
    """W-9.1"""
    data = PRODUCED + FETCHED + bytes(500)
    first, second, tail = dissect_segment(data)
    assert (first.start, first.end, second.start) == (0, 109, 109)
    assert value(second, "batch[1].partition_leader_epoch") == 0
    assert bytes(value(second, "batch[1].records[0].key")) == b"ada"  # type: ignore[call-overload]
    assert value(second, "batch[1].records[1].key") is None
    assert (tail.name, tail.start, tail.end) == ("tail", 218, 718)
    assert not [fault for span in (first, second, tail) for fault in span.faults()]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_records_are_shown_in_the_bytes_they_decompress_to(codec: Codec) -> None:
    (span,) = dissect_segment(batch(compress(RECORD * 3, codec), count=3, codec=codec))
    inner = span.find("batch[0].decompressed")
    assert inner is not None and inner.buffer == RECORD * 3
    assert [child.start for child in inner.children] == [0, 9, 18]
    lines = [line for line in render([span]) if "records[2].value" in line]
    assert lines[0].startswith("~00000018       24  02 76 ")
    assert "records[2].value = 'v'" in lines[0]


def test_a_bomb_is_not_decompressed() -> None:
    bomb = batch(compress(bytes(4 << 20), Codec.ZSTD), codec=Codec.ZSTD)
    (span,) = dissect_segment(bomb, limits=Limits(decompressed_bytes_max=1 << 20))
    (fault,) = span.faults()
    assert fault.name == "batch[0].payload"
    assert "more than the limit of 1048576 bytes" in fault.fault


def test_a_flipped_bit_is_a_wrong_crc_and_the_next_batch_is_shown_all_the_same() -> None:
    data = bytearray(PRODUCED * 2)
    data[80] ^= 1
    first, second = dissect_segment(data)
    assert [fault.name for fault in first.faults()] == ["batch[0].crc"]
    assert not list(second.faults())


def test_a_torn_batch_says_how_much_of_it_is_there() -> None:
    (span,) = dissect_segment(PRODUCED[:100])
    assert span.fault == "the batch claims 109 bytes and 100 are left"


def test_a_record_that_runs_past_its_batch_is_named_with_its_place() -> None:
    (span,) = dissect_segment(batch(RECORD + b"\x7e" + RECORD[1:], count=2))
    (fault, *_) = (leaf for leaf in span.leaves() if leaf.fault)
    assert (fault.start, fault.name) == (61 + 9, "batch[0].records[1]")
    assert fault.fault == "a record of 63 bytes with 8 left"


def test_records_beyond_the_limit_are_counted() -> None:
    (span,) = dissect_segment(batch(RECORD * 9, count=9), limits=Limits(records_max=2))
    assert list(span.leaves())[-1].note == "7 more not shown"
    assert not list(span.faults())


def test_an_index_entry_is_an_offset_and_a_position() -> None:
    """W-9.2"""
    data = struct.pack(">iiii", 3, 4096, 9, 8300) + bytes(16)
    first, second, tail = dissect(data, file_name="/data/clicks-0/00000000000000000100.index")
    assert value(first, "entry[0].position") == 4096
    relative = second.find("entry[1].relative_offset")
    assert relative is not None and (relative.value, relative.note) == (9, "offset 109")
    assert (tail.name, tail.start, tail.end) == ("tail", 16, 32)


def test_index_entries_that_do_not_ascend_are_a_fault() -> None:
    """W-9.2"""
    spans = list(dissect_index(struct.pack(">iiii", 9, 8300, 3, 9000)))
    assert [span.fault for span in spans] == ["", "not behind the entry before it: entries ascend"]


def test_an_index_ends_with_the_crc_of_its_entries() -> None:
    """W-9"""
    entries = struct.pack(">iiii", 3, 4096, 9, 8300)
    *_, crc = dissect_index(entries + struct.pack(">I", crc32c.crc32c(entries)))
    assert (crc.name, crc.start, crc.end, crc.fault) == ("crc", 16, 20, "")
    *_, crc = dissect_index(entries + struct.pack(">I", crc32c.crc32c(entries) ^ 1))
    assert crc.fault == f"the entries have 0x{crc32c.crc32c(entries):08x}"


def test_a_time_index_entry_is_a_timestamp_and_an_offset() -> None:
    """W-9.3"""
    data = struct.pack(">qi", 1_760_000_000_000, 5)
    span = next(dissect_time_index(data, base_offset=10))
    timestamp, offset = span.children
    assert (timestamp.value, timestamp.note) == (1_760_000_000_000, "2025-10-09 08:53:20.000Z")
    assert (offset.value, offset.note) == (5, "offset 15")
    *_, rest = dissect_time_index(data + b"xx", base_offset=10)
    assert rest.fault == "an entry has 12 bytes and 2 are left"


def test_timestamps_of_a_time_index_may_stay_and_its_offsets_may_not() -> None:
    """W-9.3"""
    entries = struct.pack(">qiqiqi", 1000, 3, 1000, 5, 1001, 5)
    faults = [bool(span.fault) for span in dissect_time_index(entries)]
    assert faults == [False, False, True]


def test_only_twenty_digits_name_a_segment() -> None:
    """W-9.1"""
    assert base_offset_of("x/00000000000000000042.timeindex") == 42
    assert base_offset_of("42.log") is None


@given(st.binary(max_size=150), st.sampled_from(["0.log", "0.index", "0.timeindex"]))
def test_any_bytes_at_all_are_explained_without_raising(data: bytes, file_name: str) -> None:
    spans = list(dissect(data, file_name=file_name))
    assert sum(span.end - span.start for span in spans) <= len(data)
    assert all(line.isprintable() for line in render(spans))


@given(st.data())
def test_batches_with_bytes_changed_are_explained_without_raising(data: st.DataObject) -> None:
    plain = PRODUCED
    payload = plain[61:]
    codec = data.draw(st.sampled_from(list(Codec)))
    damaged = bytearray(batch(compress(payload, codec), count=3, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(12, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assert all(line.isprintable() for line in render(dissect_segment(damaged)))
