"""The compiled reader and writer of records, beside the Python code that they stand in for.

Both must give the same bytes, the same records and the same errors. The Python code alone runs in
every other test of this folder where `millrace-native` is not installed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import (
    HEADER_SIZE,
    Codec,
    CorruptBatch,
    batch_ranges,
    decode_columns,
    encode_batch,
    native,
    read_header,
    seal,
)
from millrace_protocol.records.arrow import decode_arrow
from tests.protocol.test_records_arrow import fetches

millrace_native = pytest.importorskip(
    "millrace_native", reason="needs `pip install ./protocol/native`"
)

FIELD = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 9000])
HEADERS = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=9)), max_size=3)
TIMES = st.integers(0, 2**62)


@contextmanager
def python_alone() -> Iterator[None]:
    """As if the library were not installed."""
    with mock.patch.object(native, "compiled", None):
        yield


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or its error with all that is said of it."""
    try:
        return call()
    except CorruptBatch as corrupt:
        return corrupt.message, corrupt.position, corrupt.reason
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        return repr(error)


def both(call: Callable[[], Any]) -> tuple[Any, Any]:
    with python_alone():
        expected = outcome(call)
    return outcome(call), expected


def chunks_of(fetch: bytes, from_offset: int = 0, chunk_records: int = 7) -> list[Any]:
    """Each chunk, and then the error if there is one."""
    found: list[Any] = []
    decoded = decode_columns(fetch, from_offset=from_offset, chunk_records=chunk_records)
    try:
        for columns, next_offset in decoded:
            found.append((list(columns.records()), next_offset))
    except CorruptBatch as corrupt:
        found.append((corrupt.message, corrupt.position, corrupt.reason))
    return found


def edited(fetch: bytes, data: st.DataObject) -> bytes:
    """The same batches with a right CRC, one of them with other bytes."""
    ranges = [(first, first + size) for first, size, *_ in batch_ranges(fetch)]
    first, end = data.draw(st.sampled_from(ranges))
    payload = bytearray(fetch[first + HEADER_SIZE : end])
    start = data.draw(st.integers(0, len(payload)))
    stop = data.draw(st.integers(start, min(start + 4, len(payload))))
    payload[start:stop] = data.draw(st.binary(max_size=12))
    header = read_header(fetch, first)
    header.batch_length = HEADER_SIZE - 12 + len(payload)
    batch = bytearray(header.pack() + payload)
    seal(batch)
    return fetch[:first] + bytes(batch) + fetch[end:]


def test_the_library_is_in_use() -> None:
    assert native.compiled is millrace_native


@given(fetches(), st.data())
def test_sound_fetches_are_read_alike(
    fetch_and_end: tuple[bytes, int], data: st.DataObject
) -> None:
    fetch, end = fetch_and_end
    from_offset = data.draw(st.integers(0, end) | st.integers(max(0, end - 60), end))
    found, expected = both(lambda: chunks_of(fetch, from_offset))
    assert found == expected
    found, expected = both(lambda: decode_arrow(fetch, from_offset=from_offset))
    assert found.equals(expected)
    found.validate(full=True)


@given(fetches().filter(lambda found: bool(found[0])), st.data())
def test_every_fault_is_named_alike(fetch_and_end: tuple[bytes, int], data: st.DataObject) -> None:
    fetch = edited(edited(fetch_and_end[0], data), data)
    found, expected = both(lambda: chunks_of(fetch))
    assert found == expected
    found, expected = both(lambda: decode_arrow(fetch))
    assert found == expected


@given(st.lists(st.tuples(FIELD, FIELD, HEADERS, TIMES), min_size=1, max_size=90), st.data())
def test_batches_are_the_same_bytes(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    keys, values, headers, times = (list(column) for column in zip(*rows, strict=True))
    options = {
        "keys": data.draw(st.sampled_from([None, keys])),
        "headers": data.draw(st.sampled_from([None, [tuple(each) for each in headers], headers])),
        "timestamps_ms": data.draw(st.sampled_from([times[0], times, [times[0]] * len(times)])),
        "codec": data.draw(st.sampled_from(Codec)),
    }
    found, expected = both(lambda: encode_batch(values, **options))
    assert found == expected


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 20_000])
def test_many_records_are_the_same_bytes_and_columns(count: int) -> None:
    values: list[bytes | None] = [b"%d" % number for number in range(count)]
    batch, expected = both(lambda: encode_batch(values, timestamps_ms=list(range(count))))
    assert batch == expected
    found, expected = both(lambda: decode_arrow(batch))
    assert found.equals(expected)
    found, expected = both(lambda: chunks_of(bytes(batch), chunk_records=512))
    assert found == expected


def test_a_large_first_record_reserves_no_memory_for_the_others() -> None:
    # 16 MiB for each of them would be 16 TiB.
    values: list[bytes | None] = [b"x" * (16 << 20), *[b""] * (1 << 20)]
    batch = millrace_native.encode_columns(values, 1, None, None, HEADER_SIZE)[0]
    assert len(batch) < 32 << 20


@pytest.mark.parametrize(
    "columns",
    [
        {"values": ["text"]},
        {"values": [b"v"], "keys": [1]},
        {"values": [b"v"], "headers": [(("\ud800", b""),)]},
        {"values": [b"v"], "headers": [(("a", "b"),)]},
        {"values": [b"v"], "headers": [(("a",),)]},
        {"values": [b"v"], "timestamps_ms": [2**64]},
        {"values": [b"v", b"w"], "timestamps_ms": [-(2**63), 2**63 - 1]},
        {"values": [b"v", b"w"], "timestamps_ms": [True, 4]},
    ],
)
def test_what_cannot_be_encoded_is_refused_alike(columns: dict[str, Any]) -> None:
    found, expected = both(lambda: encode_batch(**{"timestamps_ms": 1, **columns}))
    assert found == expected


def test_arrays_that_do_not_fit_are_refused() -> None:
    flat, data, bounds = memoryview(b"abcdef"), np.empty(4, np.uint8), np.empty(3, np.int32)
    positions, sizes = np.array([0, 4]), np.array([2, 2])
    millrace_native.gather(flat, positions, sizes, bounds, data)
    assert bytes(data) == b"abef" and bounds.tolist() == [0, 2, 4]
    for wrong in (np.array([5, 4]), np.array([-1, 0]), np.array([2**62, 0])):
        with pytest.raises((ValueError, OverflowError)):
            millrace_native.gather(flat, wrong, sizes, bounds, data)
    with pytest.raises(ValueError, match="unequal length"):
        millrace_native.gather(flat, positions[:1], sizes, bounds, data)
    with pytest.raises(ValueError, match="beyond the buffer"):
        millrace_native.gather(flat, positions, sizes, bounds, data[:3])
    with pytest.raises(ValueError, match="cannot be written"):
        millrace_native.gather(flat, positions, sizes, bounds, b"abcd")
    with pytest.raises(ValueError, match="overlap"):
        millrace_native.gather(data, np.array([0, 2]), sizes, bounds, data)
    room = np.empty((native.FIELDS, 1), np.int64)
    batch = np.zeros((1, native.BATCH_NUMBERS), np.int64)
    batch[0, 2] = 2
    with pytest.raises(ValueError, match="room"):
        millrace_native.read_fields(flat, batch, room)
    batch[0, 2] = -1
    with pytest.raises((ValueError, OverflowError)):
        millrace_native.read_fields(flat, batch, room)
    for position, end in ((2**62, 2**63 - 1), (-1, 6), (4, 2)):
        batch[0, :3] = position, end, 1
        assert millrace_native.read_fields(flat, batch, room) == 0
