"""Records made from columns: when they are made, and what deserializers may do."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from millrace.records import Record, RecordBatch, TopicPartition, deserialize, make_records
from millrace_protocol.records import Columns, decode_columns, encode_batch

WHERE = TopicPartition("t", 3)


def columns_of(count: int) -> Columns:
    batch = encode_batch(
        [b"%d" % index for index in range(count)],
        keys=[b"k%d" % index if index % 2 else None for index in range(count)],
        timestamps_ms=7,
        base_offset=10,
    )
    ((columns, _),) = decode_columns(bytes(batch), chunk_records=count)
    return columns


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """What Python's collector did, with nothing left over from before."""
    seen: list[str] = []

    def note(phase: str, _: object) -> None:
        seen.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_records_that_are_not_kept_do_not_wake_the_garbage_collector(
    collections: list[str],
) -> None:
    columns = columns_of(5_000)
    collections.clear()
    last = None
    for record in make_records(columns, WHERE, columns.offsets):
        last = record.value
    assert last == b"4999"
    assert collections == []
    kept = list(make_records(columns, WHERE, columns.offsets))
    assert len(kept) == 5_000
    assert collections != []


def test_a_record_has_the_fields_of_its_row() -> None:
    columns = columns_of(3)
    first, second, third = make_records(columns, WHERE, columns.offsets)
    assert first == Record.of("t", 3, 10, 7, None, b"0")
    assert second == Record.of("t", 3, 11, 7, b"k1", b"1")
    assert third.offset == 12


def test_deserializers_never_see_a_null() -> None:
    columns = columns_of(4)
    columns.values[2] = None
    assert deserialize(columns, bytes.decode, int) is None
    keys: list[Any] = list(columns.keys)
    values: list[Any] = list(columns.values)
    assert keys == [None, "k1", None, "k3"]
    assert values == [0, 1, None, 3]


@pytest.mark.parametrize(
    ("bad_key", "bad_value", "first"), [(5, 3, 3), (3, 4, 3), (1, 9, 1), (9, None, 9)]
)
def test_the_first_refusal_of_either_column_is_told(
    bad_key: int, bad_value: int | None, first: int
) -> None:
    def deserialize_key(key: bytes) -> bytes:
        if key == b"k%d" % bad_key:
            raise ValueError("key")
        return key

    def deserialize_value(value: bytes) -> int:
        if int(value) == bad_value:
            raise ValueError("value")
        return int(value)

    columns = columns_of(10)
    refused = deserialize(columns, deserialize_key, deserialize_value)
    assert refused is not None
    index, error = refused
    assert index == first
    assert str(error) == ("value" if first == bad_value else "key")
    values: list[Any] = list(columns.values[:first])
    assert values == list(range(first))


def test_the_bytes_of_a_batch_are_had_with_and_without_a_copy() -> None:
    encoded = bytes(encode_batch([b"a", b"b"], timestamps_ms=7))
    frame = bytearray(encoded)
    batch: RecordBatch = RecordBatch(WHERE, memoryview(frame), base_offset=0, next_offset=2)
    assert batch.view.obj is frame
    assert batch.view == encoded
    data = batch.data
    frame[:] = bytes(len(frame))
    assert isinstance(data, bytes)
    assert data == batch.data == batch.view == encoded
    assert batch.values() == [b"a", b"b"]


def test_the_values_of_a_batch_are_those_of_its_records() -> None:
    data = b"".join(
        encode_batch([b"%d" % index] * 40, timestamps_ms=7, base_offset=index * 40)
        for index in range(3)
    )
    batch: RecordBatch = RecordBatch(WHERE, data, base_offset=39, next_offset=120)
    assert (
        batch.values() == [record.value for record in batch] == [b"0"] + [b"1"] * 40 + [b"2"] * 40
    )
    assert len(batch) == 81
