"""Batches that we and two other implementations write, read by all three."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import (
    HEADER_SIZE,
    RECORD_OVERHEAD_BYTES,
    SMALL_BATCH_BYTES,
    Codec,
    CorruptBatch,
    Record,
    check_batch,
    check_produced_batch,
    count_records,
    decode_fetch,
    decode_records,
    encode_batch,
    encode_records,
    offset_after,
    read_header,
    record_size_max,
    stamp_log_append_time,
)

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function when it is first imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_python_records

READERS: dict[str, Callable[[bytes], Any]] = {
    "aiokafka": lambda batch: aiokafka_records.DefaultRecordBatch(bytearray(batch)),
    "aiokafka, pure": lambda batch: aiokafka_records._DefaultRecordBatchPy(batch),
    "kafka-python": lambda batch: kafka_python_records.DefaultRecordBatch(batch),
}
BUILDERS: dict[str, Any] = {
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka, pure": aiokafka_records._DefaultRecordBatchBuilderPy,
    "kafka-python": kafka_python_records.DefaultRecordBatchBuilder,
}
# kafka-python brings no compression library but gzip's.
CODECS = {name: [0, 1] if name == "kafka-python" else [0, 1, 2, 3, 4] for name in READERS}

TIMES = st.integers(0, 2**42)
NULLABLE = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 9000])
HEADERS = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=9)), max_size=3)
COLUMNS = st.lists(st.tuples(NULLABLE, NULLABLE, HEADERS, TIMES), min_size=1, max_size=90)


def records_of(columns: list[tuple[Any, ...]], base_offset: int = 0) -> list[Record]:
    return [
        (base_offset + index, timestamp, key, value, tuple(headers))
        for index, (key, value, headers, timestamp) in enumerate(columns)
    ]


def encode(columns: list[tuple[Any, ...]], **options: Any) -> bytes:
    keys, values, headers, times = zip(*columns, strict=True)
    batch = encode_batch(values, keys=keys, headers=headers, timestamps_ms=times, **options)
    return bytes(batch)


def read_foreign(reader: str, batch: bytes) -> list[Record]:
    parsed = READERS[reader](batch)
    assert parsed.validate_crc()
    return [
        (
            record.offset,
            record.timestamp,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple((name, value) for name, value in record.headers),
        )
        for record in parsed
    ]


def write_foreign(writer: str, columns: list[tuple[Any, ...]], codec: int) -> bytes:
    builder = BUILDERS[writer](2, codec, False, -1, -1, -1, 1 << 30)
    for index, (key, value, headers, timestamp) in enumerate(columns):
        assert builder.append(index, timestamp, key, value, list(headers)) is not None
    return bytes(builder.build())


@given(COLUMNS, st.sampled_from(Codec), st.integers(0, 2**62))
def test_encoded_records_are_decoded_equal(
    columns: list[tuple[Any, ...]], codec: Codec, base_offset: int
) -> None:
    batch = encode(columns, codec=codec, base_offset=base_offset, leader_epoch=3)
    header = check_produced_batch(batch, max_bytes=len(batch))
    assert header.max_timestamp == max(column[3] for column in columns)
    assert (header.partition_leader_epoch, header.producer_id) == (3, -1)
    assert decode_records(batch) == records_of(columns, base_offset)


@pytest.mark.parametrize("reader", READERS)
@given(columns=COLUMNS, data=st.data())
def test_other_implementations_read_our_batches(
    reader: str, columns: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    codec = Codec(data.draw(st.sampled_from(CODECS[reader])))
    batch = encode(columns, codec=codec, base_offset=1000)
    assert read_foreign(reader, batch) == records_of(columns, 1000)


@pytest.mark.parametrize("writer", BUILDERS)
@given(columns=COLUMNS, data=st.data())
def test_batches_of_other_implementations_are_read(
    writer: str, columns: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    batch = write_foreign(writer, columns, data.draw(st.sampled_from(CODECS[writer])))
    assert decode_records(batch) == records_of(columns)


@given(COLUMNS)
def test_uncompressed_bytes_are_those_of_aiokafka(columns: list[tuple[Any, ...]]) -> None:
    assert encode(columns) == write_foreign("aiokafka", columns, 0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_large_compressed_batch_is_read_by_aiokafka(codec: Codec) -> None:
    columns: list[tuple[Any, ...]] = [
        (b"k%d" % n, b"a value " * 20, [], 1_700_000_000_000 + n // 7) for n in range(2000)
    ]
    batch = encode(columns, codec=codec)
    assert read_header(batch).codec is codec
    assert len(batch) < 100_000
    assert read_foreign("aiokafka", batch) == decode_records(batch) == records_of(columns)


# One batch per shape that the encoder has a path of its own for.
SHAPES: dict[str, dict[str, Any]] = {
    "values": {},
    "keys": {"keys": [b"key"] * 9000},
    "times": {"timestamps_ms": range(9000)},
    "keys and times": {"keys": [b"key"] * 9000, "timestamps_ms": range(9000)},
    "times back": {"timestamps_ms": range(9000, 0, -1)},
    "headers": {"headers": [[("h", b"1")]] * 9000},
    "null keys": {"keys": [None] * 9000},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_offset_deltas_of_one_two_and_three_bytes(shape: str) -> None:
    options = {"timestamps_ms": 5} | SHAPES[shape]
    values = [b"%d" % index for index in range(9000)]
    batch = bytes(encode_batch(values, **options))
    records = decode_records(batch)
    assert [record[0] for record in records] == list(range(9000))
    assert [record[3] for record in records] == values
    assert records == read_foreign("aiokafka", batch)


@pytest.mark.parametrize("size", [0, 1, 56, 57, 58, 63, 64, 8180, 8191, 8192, 2**20, 2**20 + 1])
def test_values_on_both_sides_of_every_length_boundary(size: int) -> None:
    for key in (None, b"k", b"k" * size):
        batch = bytes(encode_batch([b"v" * size] * 2, keys=[key] * 2, timestamps_ms=5))
        assert batch == write_foreign("aiokafka", [(key, b"v" * size, [], 5)] * 2, 0)
        assert decode_records(batch) == [(n, 5, key, b"v" * size, ()) for n in (0, 1)]


def test_a_payload_that_does_not_shrink_is_stored_as_it_is() -> None:
    batch = bytes(encode_batch([b"x"], timestamps_ms=1, codec=Codec.ZSTD))
    assert read_header(batch).codec is Codec.NONE
    assert decode_records(batch) == [(0, 1, None, b"x", ())]


def test_the_producers_state_is_in_the_header() -> None:
    batch = encode_batch(
        [b"a"] * 3, timestamps_ms=1, producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1
    )
    header = check_produced_batch(batch, max_bytes=1000)
    assert (header.producer_id, header.producer_epoch) == (2**40, 7)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 1, 1)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"values": []}, "0 records"),
        ({"values": [b"a"], "keys": []}, "0 keys for 1 values"),
        ({"values": [b"a"], "headers": [(), ()]}, "2 headers for 1 values"),
        ({"values": [b"a"], "timestamps_ms": []}, "0 timestamps_ms for 1 values"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(
    columns: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        encode_batch(**({"timestamps_ms": 1} | columns))


@pytest.mark.parametrize("value", ["text", 5])
def test_values_that_are_not_bytes_are_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        encode_batch([value], timestamps_ms=1)


@given(COLUMNS, st.sampled_from(Codec))
def test_a_batch_is_never_larger_than_the_bounds_of_its_records(
    columns: list[tuple[Any, ...]], codec: Codec
) -> None:
    bound = sum(record_size_max(key, value, headers) for key, value, headers, _ in columns)
    assert len(encode(columns, codec=codec)) <= HEADER_SIZE + bound


@given(st.integers(0, 2**27 - 1), st.sampled_from([0, 1, 60, 100, 8191, 60_000]))
def test_the_small_bound_holds_up_to_a_mebibyte(delta: int, size: int) -> None:
    count = (SMALL_BATCH_BYTES - HEADER_SIZE) // (RECORD_OVERHEAD_BYTES + 2 * size)
    times = [delta] * count
    times[0] = 0
    field = b"x" * size
    batch = encode_batch([field] * count, keys=[field] * count, timestamps_ms=times)
    assert len(batch) <= HEADER_SIZE + count * (RECORD_OVERHEAD_BYTES + 2 * size)


def test_log_append_time_replaces_every_timestamp() -> None:
    batch = encode_batch([b"a", b"b", b"c"], timestamps_ms=[10, 500_000, 30])
    stamp_log_append_time(batch, timestamp_ms=99)
    assert [record[1] for record in decode_records(batch)] == [99, 99, 99]
    assert [record[1] for record in read_foreign("aiokafka", bytes(batch))] == [99, 99, 99]


@given(COLUMNS, st.sampled_from(Codec), st.data())
def test_compacted_records_keep_their_offsets(
    columns: list[tuple[Any, ...]], codec: Codec, data: st.DataObject
) -> None:
    records = records_of(columns, 500)
    kept = [record for record in records if data.draw(st.booleans())]
    last = 500 + len(records) - 1
    batch = bytes(encode_records(kept, base_offset=500, last_offset=last, codec=codec))
    header = check_batch(batch)
    assert (header.record_count, header.last_offset) == (len(kept), last)
    assert decode_records(batch) == kept
    if kept:
        assert read_foreign("aiokafka", batch) == kept


@given(COLUMNS, st.sampled_from(Codec), st.integers(0, 2**45))
def test_a_delete_horizon_takes_no_record_its_time(
    columns: list[tuple[Any, ...]], codec: Codec, horizon_ms: int
) -> None:
    records = records_of(columns, 500)
    last = 500 + len(records) - 1
    batch = bytes(
        encode_records(
            records, base_offset=500, last_offset=last, codec=codec, delete_horizon_ms=horizon_ms
        )
    )
    header = check_batch(batch)
    assert header.delete_horizon_ms == header.base_timestamp == horizon_ms
    assert header.max_timestamp == max(record[1] for record in records)
    assert decode_records(batch) == read_foreign("aiokafka", batch) == records
    plain = read_header(bytes(encode_records(records, base_offset=500, last_offset=last)))
    assert plain.delete_horizon_ms is None


def test_times_that_one_batch_cannot_hold_are_refused() -> None:
    far: list[Record] = [(0, 2**63 - 1, None, b"v", ()), (1, -2, None, b"v", ())]
    with pytest.raises(ValueError, match="too far"):
        encode_records(far, base_offset=0, last_offset=1)


@pytest.mark.parametrize("offsets", [[5, 5], [6, 5], [4], [10]])
def test_compacted_records_must_be_in_order_and_inside_the_batch(offsets: list[int]) -> None:
    records: list[Record] = [(offset, 1, None, b"v", ()) for offset in offsets]
    with pytest.raises(ValueError, match="is not in"):
        encode_records(records, base_offset=5, last_offset=9)


def fetch_of(*counts: int, codec: Codec = Codec.NONE, base_offset: int = 0) -> bytes:
    """Batches of so many records, one after the other."""
    batches = []
    for count in counts:
        values = [b"%d" % (base_offset + index) for index in range(count)]
        batches.append(
            encode_batch(values, timestamps_ms=base_offset, base_offset=base_offset, codec=codec)
        )
        base_offset += count
    return b"".join(batches)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_fetch_is_read_in_chunks_from_the_offset_asked_for(codec: Codec) -> None:
    fetch = fetch_of(100, 1, 70, codec=codec)
    for from_offset in (0, 1, 50, 99, 100, 101, 170):
        reached = from_offset
        for chunk, next_offset in decode_fetch(fetch, from_offset=from_offset, chunk_records=16):
            assert 0 < len(chunk) <= 16
            assert [record[0] for record in chunk] == list(range(reached, next_offset))
            assert [record[3] for record in chunk] == [b"%d" % record[0] for record in chunk]
            reached = next_offset
        assert reached == 171
        assert offset_after(fetch, from_offset=from_offset) == 171
    assert list(decode_fetch(fetch, from_offset=171)) == []
    assert offset_after(fetch, from_offset=400) == 400


def test_records_are_counted_without_control_batches_and_what_is_before_an_offset() -> None:
    control = encode_records([(3, 1, b"", b"", ())], base_offset=3, last_offset=3, attributes=0x20)
    gaps = [(offset, 1, None, b"v", ()) for offset in (5, 6, 9)]
    compacted = encode_records(gaps, base_offset=4, last_offset=12)
    fetch = fetch_of(3) + control + compacted + fetch_of(40, codec=Codec.LZ4, base_offset=13)
    for from_offset in range(60):
        records = [chunk for chunk, _ in decode_fetch(fetch, from_offset=from_offset)]
        assert count_records(fetch, from_offset=from_offset) == sum(map(len, records))
    assert count_records(fetch[:-1], from_offset=0) == 6, "the last batch is not whole"


def test_a_count_that_no_batch_can_have_is_not_counted() -> None:
    batch = bytearray(fetch_of(3))
    batch[HEADER_SIZE - 4 : HEADER_SIZE] = (4).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        count_records(batch, from_offset=0)


def test_a_last_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    whole, cut = fetch_of(10), fetch_of(10, base_offset=10)
    for size in range(len(cut)):
        fetch = whole + cut[:size]
        assert [next_offset for _, next_offset in decode_fetch(fetch)] == [10]
        assert offset_after(fetch, from_offset=0) == 10


def test_control_batches_and_compacted_tails_advance_without_records() -> None:
    """W-5.7"""
    control = encode_records(
        [(3, 1, b"\x00\x00\x00\x01", b"", ())], base_offset=3, last_offset=3, attributes=0x20
    )
    compacted = encode_records([(5, 1, None, b"v", ())], base_offset=4, last_offset=9)
    emptied = encode_records([], base_offset=10, last_offset=19)
    fetch = fetch_of(3) + control + compacted + emptied
    chunks = [([record[0] for record in chunk], end) for chunk, end in decode_fetch(fetch)]
    assert chunks == [([0, 1, 2], 3), ([], 4), ([5], 6), ([], 10), ([], 20)]
    assert offset_after(fetch, from_offset=0) == 20
    assert decode_records(bytes(control))[0][2] == b"\x00\x00\x00\x01"
