"""Runs of records of one layout: reading them as a table equals reading one by one."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace_protocol.records import (
    HEADER_SIZE,
    Columns,
    CorruptBatch,
    Record,
    decode_columns,
    decode_fetch,
    encode_batch,
    seal,
)
from millrace_protocol.records.table_run import RUN_MIN, read_table_run
from millrace_protocol.records.varint import VARINTS, varint

ONE_BY_ONE = RUN_MIN // 2
"""Records in a chunk that is too small to be read as a table."""

TIMES = st.sampled_from(
    [
        lambda index: 5,
        lambda index: 5 + index // 20,
        lambda index: 5 + index * 3,
        lambda index: 90 - index % 7,
        lambda index: 2**63 - 2 - index % 2,
    ]
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Long stretches of one layout, with other layouts among them."""
    count = draw(st.integers(1, 260))
    key_size = draw(st.none() | st.integers(0, 3) | st.sampled_from([63, 64, 8192]))
    value_size = draw(st.integers(0, 3) | st.integers(40, 70) | st.sampled_from([100, 8191, 8192]))
    time = draw(TIMES)
    keys: list[bytes | None] = [
        None if key_size is None else (b"%d" % index * 8192)[:key_size] for index in range(count)
    ]
    values: list[bytes | None] = [(b"%d" % index * 8192)[:value_size] for index in range(count)]
    headers: list[list[tuple[str, bytes | None]]] = [[] for _ in range(count)]
    for _ in range(draw(st.integers(0, 2))):
        index = draw(st.integers(0, count - 1))
        values[index] = draw(st.none() | st.binary(max_size=70))
        headers[index] = draw(st.sampled_from([[], [("n", b"v")], [("n", None), ("m", b"")]]))
    return bytes(
        encode_batch(
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=[time(index) for index in range(count)],
            base_offset=draw(st.sampled_from([0, 2**40])),
        )
    )


def read(batch: bytes, chunk_records: int, from_offset: int = 0) -> tuple[list[Record], str]:
    """All records before the fault, and what the fault is."""
    found: list[Record] = []
    try:
        for chunk, next_offset in decode_fetch(
            batch, from_offset=from_offset, chunk_records=chunk_records
        ):
            assert next_offset == chunk[-1][0] + 1
            found += chunk
    except CorruptBatch as corrupt:
        return found, str(corrupt)
    return found, ""


@given(batches(), st.sampled_from([64, 100, 512]), st.integers(0, 300))
def test_a_table_has_the_records_that_reading_one_by_one_finds(
    batch: bytes, chunk_records: int, skipped: int
) -> None:
    (base_offset,) = struct.unpack_from(">q", batch)
    from_offset = base_offset + skipped
    expected = read(batch, ONE_BY_ONE, from_offset)
    assert expected[1] == ""
    assert read(batch, chunk_records, from_offset) == expected


FIXED = bytes(encode_batch([b"%03d" % index for index in range(100)], timestamps_ms=7))
KEYED = bytes(
    encode_batch(
        [b"v" * 70] * 100,
        keys=[b"%03d" % index for index in range(100)],
        timestamps_ms=[7 + index // 9 for index in range(100)],
    )
)


@given(
    st.sampled_from([FIXED, KEYED]),
    st.integers(0, 10_000),
    st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 2, 127, 128, 129, 255])),
)
@example(FIXED, len(FIXED) - HEADER_SIZE - 1, 2)
@example(KEYED, len(KEYED) - HEADER_SIZE - 1, 2)
def test_no_changed_byte_is_read_as_anything_else_than_one_by_one(
    batch: bytes, place: int, byte: int
) -> None:
    changed = bytearray(batch)
    changed[HEADER_SIZE + place % (len(batch) - HEADER_SIZE)] = byte
    seal(changed)
    expected, expected_fault = read(bytes(changed), ONE_BY_ONE)
    found, fault = read(bytes(changed), 100)
    assert fault == expected_fault
    assert found == ([] if fault else expected)


@pytest.mark.parametrize("place", range(HEADER_SIZE, HEADER_SIZE + 11))
def test_every_byte_of_a_row_that_is_no_value_ends_the_run(place: int) -> None:
    """A row of `FIXED` is length, attributes, time, offset, key size, value size, value, count."""
    row_size = 10
    changed = bytearray(FIXED)
    changed[place + row_size * 40] ^= 0x40
    run = read_table_run(
        bytes(changed), HEADER_SIZE, len(changed), first_delta=0, count=64, width=1
    )
    is_free = (place - HEADER_SIZE) % row_size in (1, 2, 6, 7, 8)
    if is_free:
        assert run is not None and len(run.values) == 64
    elif (place - HEADER_SIZE) % row_size == 3:
        assert run is None
    else:
        assert run is not None and len(run.values) == 40 + (place - HEADER_SIZE) // row_size


@pytest.mark.parametrize(
    ("first_delta", "count", "width"), [(0, 64, 1), (64, 36, 2)], ids=["one byte", "two bytes"]
)
def test_a_run_is_found_where_there_is_one(first_delta: int, count: int, width: int) -> None:
    position = HEADER_SIZE + sum(
        len(
            b"".join(
                (varint(70), b"\0\0", varint(index), b"\6", b"key", varint(70), b"v" * 70, b"\0")
            )
        )
        for index in range(first_delta)
    )
    run = read_table_run(
        KEYED, position, len(KEYED), first_delta=first_delta, count=count, width=width
    )
    assert run is not None
    assert run.keys == [b"%03d" % index for index in range(first_delta, first_delta + count)]
    assert run.values == [b"v" * 70] * count
    assert run.time_deltas == [index // 9 for index in range(first_delta, first_delta + count)]


def test_a_run_does_not_reach_beyond_its_batch() -> None:
    run = read_table_run(FIXED, HEADER_SIZE, len(FIXED) - 1, first_delta=0, count=64, width=1)
    assert run is not None and run.end <= len(FIXED) - 1
    short = HEADER_SIZE + 10 * (RUN_MIN - 1)
    assert read_table_run(FIXED, HEADER_SIZE, short, first_delta=0, count=64, width=1) is None


def test_columns_hold_the_same_as_the_tuples() -> None:
    ((columns, next_offset),) = decode_columns(KEYED, from_offset=90)
    assert next_offset == 100
    assert columns.offsets == range(90, 100)
    assert list(columns.records()) == next(decode_fetch(KEYED, from_offset=90))[0]
    columns.truncate(3)
    assert [record[0] for record in columns.records()] == [90, 91, 92]
    columns.drop_before(92)
    assert [record[0] for record in columns.records()] == [92]
    assert len(Columns(())) == 0


def test_offset_deltas_are_encoded_from_anywhere() -> None:
    for first, end in ((0, 3), (8190, 8195), (9000, 9003)):
        assert VARINTS.row(end, first) == [varint(number) for number in range(first, end)]
