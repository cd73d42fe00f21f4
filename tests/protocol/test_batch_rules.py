"""Rules of the specification about batches that brokers write and clients read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import (
    assign,
    check_batch,
    decode_fetch,
    encode_batch,
    seal,
    stamp_log_append_time,
)

ATTRIBUTES = 21
CONTROL = 0x20


def fetched(buffer: bytes | bytearray, *, from_offset: int = 0) -> list[int]:
    chunks = decode_fetch(buffer, from_offset=from_offset)
    return [record[0] for records, _ in chunks for record in records]


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5), st.integers(0, 2**62))
def test_a_broker_changes_base_offset_and_leader_epoch_and_nothing_else(
    values: list[bytes], base_offset: int
) -> None:
    """W-5.5"""
    sent = encode_batch(values, timestamps_ms=1_000)
    stored = bytearray(sent)
    assign(stored, base_offset=base_offset, leader_epoch=5)
    check_batch(stored)
    assert [
        i for i in range(len(sent)) if sent[i] != stored[i] and not (i < 8 or 12 <= i < 16)
    ] == []


def test_log_append_time_changes_one_bit_the_largest_timestamp_and_the_crc() -> None:
    """W-5.5"""
    sent = encode_batch([b"a", b"b"], timestamps_ms=1_000)
    stored = bytearray(sent)
    stamp_log_append_time(stored, timestamp_ms=2**60 + 1)
    changed = {i for i in range(len(sent)) if sent[i] != stored[i]}
    assert changed <= {*range(17, 21), 22, *range(35, 43)}
    assert stored[22] == sent[22] | 0x08
    assert check_batch(stored).max_timestamp == 2**60 + 1


def test_control_batches_are_not_handed_to_an_application() -> None:
    """W-5.2"""
    control = bytearray(encode_batch([b"marker"], timestamps_ms=1))
    control[ATTRIBUTES + 1] |= CONTROL
    seal(control)
    after = bytearray(encode_batch([b"data"], timestamps_ms=1))
    assign(after, base_offset=1, leader_epoch=0)
    assert fetched(control + after) == [1]


@pytest.mark.parametrize("from_offset", [40, 41, 42])
def test_records_below_the_offset_asked_for_are_skipped(from_offset: int) -> None:
    """W-4.4.1"""
    batch = bytearray(encode_batch([b"a", b"b", b"c"], timestamps_ms=1))
    assign(batch, base_offset=40, leader_epoch=0)
    assert fetched(batch, from_offset=from_offset) == list(range(from_offset, 43))
