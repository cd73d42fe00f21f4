"""The batch header: the layout that runs, the layout that is declared, and every check."""

import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import (
    BATCH_HEADER,
    HEADER_SIZE,
    RECORD_COUNT_MAX,
    BatchHeader,
    BatchTooLarge,
    Codec,
    CorruptBatch,
    Fault,
    assign,
    batch_extent,
    batch_positions,
    batch_ranges,
    batch_span,
    check_batch,
    check_batches,
    check_produced_batch,
    read_header,
    seal,
    set_max_timestamp,
    stamp_log_append_time,
    validate,
)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


HEADERS = st.builds(
    BatchHeader,
    base_offset=signed(64),
    batch_length=signed(32),
    partition_leader_epoch=signed(32),
    magic=signed(8),
    crc=st.integers(0, 2**32 - 1),
    attributes=signed(16),
    last_offset_delta=signed(32),
    base_timestamp=signed(64),
    max_timestamp=signed(64),
    producer_id=signed(64),
    producer_epoch=signed(16),
    base_sequence=signed(32),
    record_count=signed(32),
)


def foreign_batch(count: int = 3, value: bytes = b"value", producer_id: int = -1) -> bytearray:
    """A batch built by aiokafka, so that no code under test made what it judges."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer_id, producer_id, producer_id, 1 << 20)
    for index in range(count):
        builder.append(index, 1_700_000_000_000 + index, b"key", value, [])
    return bytearray(builder.build())


@given(HEADERS)
def test_the_struct_and_the_construct_declaration_agree(header: BatchHeader) -> None:
    packed = header.pack()
    declared = BATCH_HEADER.parse(packed)
    fields = {name: getattr(header, name) for name in BatchHeader.__slots__}
    assert {name: declared[name] for name in fields} == fields
    assert BATCH_HEADER.build(fields) == packed
    assert BATCH_HEADER.sizeof() == HEADER_SIZE
    assert read_header(packed) == header


@given(HEADERS, st.integers(0, 20))
def test_the_cheap_scans_agree_with_the_header(header: BatchHeader, position: int) -> None:
    buf = bytes(position) + header.pack()
    assert batch_extent(buf, position) == (header.base_offset, header.size_bytes)
    assert batch_span(buf, position) == (
        header.base_offset,
        header.size_bytes,
        header.partition_leader_epoch,
        header.last_offset,
        header.max_timestamp,
    )


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_batch_of_another_implementation_is_accepted(
    kind: Callable[[bytearray], bytes | bytearray | memoryview],
) -> None:
    batch = foreign_batch()
    header = check_produced_batch(kind(batch), max_bytes=len(batch))
    assert header.size_bytes == len(batch)
    assert (header.record_count, header.last_offset, header.next_offset) == (3, 2, 3)
    assert header.codec is Codec.NONE
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_002)
    assert not (header.is_control or header.is_transactional or header.is_log_append_time)
    assert not header.has_producer


def test_a_batch_is_checked_in_the_middle_of_a_buffer() -> None:
    batch = foreign_batch()
    buf = b"head" + bytes(batch) + b"tail"
    assert check_batch(buf, 4).size_bytes == len(batch)
    assert check_batch(buf, 4, 4 + len(batch)).size_bytes == len(batch)
    with pytest.raises(CorruptBatch) as caught:
        check_batch(buf, 4, 3 + len(batch))
    assert (caught.value.reason, caught.value.position) == (Fault.TRUNCATED, 4)


EDGES = {
    "base_offset": (-1, 0, 2**62, 2**62 + 1, 2**63 - 4, 2**63 - 3, 2**63 - 1),
    "batch_length": (-1, 0, 48, 49, 2**31 - 1),
    "magic": (-1, 1, 2, 3),
    "attributes": (-1, 0, 4, 5, 0x08, 0x20, 0x25),
    "last_offset_delta": (-1, 0, 1, 2, 2**31 - 1),
    "record_count": (-1, 0, 1, 3, 8, RECORD_COUNT_MAX, RECORD_COUNT_MAX + 1, 2**31 - 1),
}
CHANGES = [(field, value) for field, values in EDGES.items() for value in values]


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("codec", [0, 4])
def test_batches_are_checked_together_as_they_are_one_by_one(codec: int, is_sealed: bool) -> None:
    sound = foreign_batch()
    for changes in combinations(CHANGES, 3):
        batch = bytearray(sound)
        header = replace(read_header(batch), **{"attributes": codec, **dict(changes)})
        batch[:HEADER_SIZE] = header.pack()
        if is_sealed:
            crc = crc32c.crc32c(batch[21 : max(HEADER_SIZE, header.size_bytes)])
            struct.pack_into(">I", batch, 17, crc)
        assert_checked_alike(sound + batch + sound)
        assert_checked_alike(sound + batch, check_crc=False)


@given(st.lists(st.sampled_from([foreign_batch(1), foreign_batch(5)]), max_size=4), st.integers(0))
def test_batches_are_checked_up_to_where_they_are_cut_short(
    batches: list[bytearray], cut: int
) -> None:
    buf = bytearray().join(batches)
    del buf[len(buf) - cut % (len(buf) + 1) :]
    assert_checked_alike(buf)


def assert_checked_alike(buf: bytearray, *, check_crc: bool = True) -> None:
    """Of `check_batches`: it says what `check_batch` says of one batch after the other."""
    positions, fault = check_batches(buf, check_crc=check_crc)
    expected: list[int] = []
    position = 0
    while position < len(buf):
        try:
            size_bytes = check_batch(buf, position, check_crc=check_crc).size_bytes
        except CorruptBatch as corrupt:
            assert str(fault) == str(corrupt)
            break
        expected.append(position)
        position += size_bytes
    else:
        assert fault is None
    assert positions == expected


def test_every_prefix_of_a_batch_is_truncated() -> None:
    batch = bytes(foreign_batch())
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch) as caught:
            check_batch(batch[:size])
        assert caught.value.reason is Fault.TRUNCATED, size


def test_every_flipped_bit_is_caught_unless_the_broker_writes_there() -> None:
    batch = bytes(foreign_batch())
    for index in range(len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[index] ^= 1 << bit
            if index < 8 or 12 <= index < 16:
                assert check_batch_or_negative_offset(flipped)
                continue
            with pytest.raises(CorruptBatch) as caught:
                check_batch(flipped)
            if index == 16:
                assert caught.value.reason is Fault.MAGIC
            elif index >= 17:
                assert caught.value.reason is Fault.CRC
            else:
                assert caught.value.reason in {Fault.LENGTH, Fault.TRUNCATED, Fault.CRC}


def check_batch_or_negative_offset(buf: bytearray) -> bool:
    header = read_header(buf)
    if header.base_offset >= 0:
        return check_batch(buf) == header
    with pytest.raises(CorruptBatch, match="negative"):
        check_batch(buf)
    return True


def edited(header_edits: dict[str, int], *, count: int = 3, producer_id: int = -1) -> bytearray:
    """A foreign batch with header fields replaced and the CRC made right again."""
    batch = foreign_batch(count, producer_id=producer_id)
    header = read_header(batch)
    for name, value in header_edits.items():
        setattr(header, name, value)
    batch[:HEADER_SIZE] = header.pack()
    seal(batch)
    return batch


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"attributes": 5}, Fault.CODEC),
        ({"attributes": 7}, Fault.CODEC),
        ({"base_offset": -1}, Fault.FIELD),
        ({"base_offset": 2**63 - 3}, Fault.FIELD),
        ({"last_offset_delta": -1}, Fault.FIELD),
        ({"last_offset_delta": 1}, Fault.FIELD),
        ({"record_count": -1}, Fault.FIELD),
        ({"record_count": 4}, Fault.FIELD),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1}, Fault.FIELD),
        ({"record_count": 100, "last_offset_delta": 99}, Fault.FIELD),
        ({"record_count": 2**30, "last_offset_delta": 2**30, "attributes": 4}, Fault.FIELD),
        ({"record_count": 10_000, "last_offset_delta": 9_999, "attributes": 1}, Fault.FIELD),
        ({"record_count": 1_000, "last_offset_delta": 999, "attributes": 2}, Fault.FIELD),
        ({"record_count": 5_000, "last_offset_delta": 4_999, "attributes": 3}, Fault.FIELD),
        ({"record_count": 500_000, "last_offset_delta": 499_999, "attributes": 4}, Fault.FIELD),
    ],
)
def test_a_sealed_lie_in_the_header_is_refused(edits: dict[str, int], reason: Fault) -> None:
    with pytest.raises(CorruptBatch) as caught:
        check_batch(edited(edits))
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("edits", "sentence"),
    [
        ({"attributes": 0x08}, "log append time"),
        ({"attributes": 0x10}, "transactions"),
        ({"attributes": 0x20}, "control"),
        ({"attributes": 0x30}, "control"),
        ({"attributes": 0x40}, "attributes 0x0040"),
        ({"attributes": -0x8000}, "attributes 0x8000"),
        ({"record_count": 2}, "disagree"),
        ({"record_count": 0}, "no records"),
        ({"base_timestamp": -2}, "below -1"),
        ({"max_timestamp": -2}, "below -1"),
        ({"max_timestamp": 1_699_999_999_999}, "in order"),
        ({"producer_id": -2}, "neither"),
        ({"producer_id": 7, "producer_epoch": -1, "base_sequence": 0}, "needs an epoch"),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": -1}, "needs an epoch"),
    ],
)
def test_a_log_may_hold_batches_that_a_client_may_not_send(
    edits: dict[str, int], sentence: str
) -> None:
    batch = edited(edits)
    check_batch(batch)
    with pytest.raises(CorruptBatch, match=sentence) as caught:
        check_produced_batch(batch, max_bytes=1 << 20)
    assert caught.value.reason is Fault.FIELD


def test_a_client_may_leave_the_max_timestamp_to_the_broker() -> None:
    """Versions of sarama before 2025 do."""
    batch = edited({"max_timestamp": -1})
    assert check_produced_batch(batch, max_bytes=1 << 20).max_timestamp == -1
    set_max_timestamp(batch, timestamp_ms=1_700_000_000_002)
    assert check_produced_batch(batch, max_bytes=1 << 20).max_timestamp == 1_700_000_000_002
    assert batch == edited({}), "the batch is sealed again"


@pytest.mark.parametrize("edits", [{"base_sequence": 0}, {"producer_epoch": 0}])
def test_epoch_and_sequence_mean_nothing_without_a_producer_id(edits: dict[str, int]) -> None:
    """aiokafka sends sequence 0."""
    check_produced_batch(edited(edits), max_bytes=1 << 20)


HEADER_EDITS = st.dictionaries(
    st.sampled_from(
        (
            "base_offset",
            "attributes",
            "last_offset_delta",
            "base_timestamp",
            "max_timestamp",
            "producer_id",
            "producer_epoch",
            "base_sequence",
            "record_count",
        )
    ),
    st.sampled_from([-(2**15), -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 100, 2**15 - 1]),
    max_size=4,
)


def outcome(batch: bytearray, max_bytes: int) -> object:
    try:
        return check_produced_batch(batch, max_bytes=max_bytes)
    except (CorruptBatch, BatchTooLarge) as error:
        return str(error)


@given(HEADER_EDITS, st.sampled_from([60, 61, 70, 1 << 20]), st.booleans(), st.integers(-1, 1))
def test_the_condition_of_an_ordinary_batch_is_that_of_the_named_checks(
    edits: dict[str, int], max_bytes: int, has_crc: bool, more: int
) -> None:
    batch = edited(edits)
    if not has_crc:
        batch[-1] ^= 1
    batch = batch + b"x" if more > 0 else batch[: len(batch) + more]
    found = outcome(batch, max_bytes)
    with pytest.MonkeyPatch.context() as patch:
        # No batch is ordinary then.
        patch.setattr(validate, "_CODECS", frozenset())
        assert outcome(batch, max_bytes) == found


def test_an_idempotent_producers_batch_is_accepted() -> None:
    header = check_produced_batch(foreign_batch(producer_id=0), max_bytes=1 << 20)
    assert header.has_producer
    assert header.last_sequence == 2
    header.base_sequence = 2**31 - 2
    assert header.last_sequence == 0


def test_one_byte_over_the_limit_is_too_large_and_nothing_else() -> None:
    batch = foreign_batch()
    with pytest.raises(BatchTooLarge) as caught:
        check_produced_batch(batch, max_bytes=len(batch) - 1)
    assert caught.value.size_bytes == len(batch)
    assert not isinstance(caught.value, CorruptBatch)


def test_bytes_after_a_produced_batch_are_refused() -> None:
    batch = foreign_batch()
    with pytest.raises(CorruptBatch, match="one batch per partition") as caught:
        check_produced_batch(batch + batch, max_bytes=1 << 20)
    assert caught.value.position == len(batch)


@given(st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_assigning_offset_and_epoch_keeps_the_crc_right(base_offset: int, epoch: int) -> None:
    buf = bytearray(b"head") + foreign_batch()
    before = read_header(buf, 4)
    assign(buf, 4, base_offset=base_offset, leader_epoch=epoch)
    header = check_batch(buf, 4)
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, epoch)
    assert header.crc == before.crc
    assert header.batch_length == before.batch_length


def test_stamping_log_append_time_reseals_the_batch() -> None:
    buf = bytearray(b"head") + foreign_batch()
    stamp_log_append_time(memoryview(buf), 4, timestamp_ms=1_800_000_000_000)
    header = check_batch(buf, 4)
    assert header.is_log_append_time
    assert header.max_timestamp == 1_800_000_000_000
    assert header.codec is Codec.NONE


def test_positions_stop_before_an_incomplete_batch() -> None:
    first, second = foreign_batch(1), foreign_batch(5)
    whole = bytes(first + second)
    assert list(batch_positions(whole)) == [0, len(first)]
    assert list(batch_positions(whole[len(first) :])) == [0]
    assert list(batch_positions(whole[:-1])) == [0]
    assert list(batch_positions(whole + bytes(100))) == [0, len(first)]
    assert list(batch_positions(b"")) == []
    ranges = list(batch_ranges(whole))
    assert [position for position, *_ in ranges] == [0, len(first)]
    for position, end, base_offset, last_offset in ranges:
        span = batch_span(whole, position)
        assert (base_offset, end - position, last_offset) == (span[0], span[1], span[3])


def test_a_corrupt_batch_names_its_fault_and_place() -> None:
    error = CorruptBatch("magic 1", 77, Fault.MAGIC)
    assert str(error) == "magic 1 [magic, byte 77]"
    assert repr(type(error)(*error.args)) == repr(error)
