"""A fetch gives the same records as Arrow columns and as tuples."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import (
    Codec,
    CorruptBatch,
    Fault,
    Record,
    check_batches,
    decode_fetch,
    decode_records,
    encode_batch,
    encode_records,
    read_header,
    stamp_log_append_time,
)
from millrace_protocol.records.arrow import SCHEMA, decode_arrow, decoding_parts
from millrace_protocol.records.arrow_encode import encode_arrow
from millrace_protocol.records.header import CODEC_MASK

NULLABLE = st.none() | st.binary(max_size=12) | st.sampled_from([b"x" * 70, b"x" * 9000])
HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3)
ROWS: st.SearchStrategy[list[tuple[Any, ...]]] = st.lists(
    st.tuples(NULLABLE, NULLABLE, HEADERS, st.integers(0, 2**41)), min_size=1, max_size=30
)
PLAIN_ROWS: st.SearchStrategy[list[tuple[Any, ...]]] = st.lists(
    st.tuples(st.none(), st.binary(max_size=9), st.builds(list), st.just(5)),
    min_size=1,
    max_size=80,
)


def rows_of(records: pa.RecordBatch) -> list[Record]:
    assert records.schema == SCHEMA
    records.validate(full=True)
    integers = records.set_column(4, "timestamp", records["timestamp"].cast(pa.int64()))
    return [
        (
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in integers.to_pylist()
    ]


def tuples_of(fetch: bytes, from_offset: int) -> list[Record]:
    return [record for chunk, _ in decode_fetch(fetch, from_offset=from_offset) for record in chunk]


@st.composite
def fetches(draw: st.DrawFn) -> tuple[bytes, int]:
    """Up to five batches of any kind that a log may hold, and the offset after them."""
    offset, batches = draw(st.integers(0, 2**50)), []
    for _ in range(draw(st.integers(0, 5))):
        rows = draw(ROWS | PLAIN_ROWS)
        keys, values, headers, times = zip(*rows, strict=True)
        codec = draw(st.sampled_from(Codec))
        batch = encode_batch(
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=times,
            codec=codec,
            base_offset=offset,
        )
        kind = draw(st.sampled_from(["as it is", "as it is", "stamped", "compacted", "control"]))
        if kind == "stamped":
            stamp_log_append_time(batch, timestamp_ms=draw(st.integers(0, 2**41)))
        elif kind != "as it is":
            kept = [record for record in decode_records(batch) if draw(st.booleans())]
            batch = encode_records(
                kept,
                base_offset=offset,
                last_offset=offset + len(rows) - 1,
                codec=codec,
                attributes=0x20 if kind == "control" else 0,
                delete_horizon_ms=draw(st.none() | st.integers(0, 2**45)),
            )
        batches.append(bytes(batch))
        offset += len(rows)
    return b"".join(batches), offset


@given(fetches(), st.data())
def test_columns_and_tuples_are_the_same_records(
    fetch_and_end: tuple[bytes, int], data: st.DataObject
) -> None:
    fetch, end = fetch_and_end
    first = read_header(fetch).base_offset if fetch else 0
    from_offset = data.draw(st.sampled_from([0, end, end + 1]) | st.integers(first, end + 1))
    assert rows_of(decode_arrow(fetch, from_offset=from_offset)) == tuples_of(fetch, from_offset)
    cut = fetch[: data.draw(st.integers(0, len(fetch)))]
    assert rows_of(decode_arrow(cut, from_offset=from_offset)) == tuples_of(cut, from_offset)


@given(fetches(), st.data())
def test_parts_are_as_large_as_they_may_be_and_together_the_whole(
    fetch_and_end: tuple[bytes, int], data: st.DataObject
) -> None:
    fetch, end = fetch_and_end
    positions, _ = check_batches(fetch)
    headers = {position: read_header(fetch, position) for position in positions}
    end_offset = data.draw(
        st.sampled_from([end, *(header.base_offset for header in headers.values())])
    )
    limits = data.draw(st.tuples(st.integers(1, 100), st.integers(1, 10_000)))
    parts = list(
        decoding_parts(
            fetch,
            positions,
            end_offset=end_offset,
            records_max=limits[0],
            compressed_bytes_max=limits[1],
        )
    )

    wanted = [place for place, header in headers.items() if header.base_offset < end_offset]
    is_compressed = any(headers[position].attributes & CODEC_MASK for position in wanted)

    def is_too_much(part: Sequence[int]) -> bool:
        records = sum(headers[position].record_count for position in part)
        size = sum(headers[position].batch_length for position in part)
        return records > limits[0] or (is_compressed and size > limits[1])

    assert [position for part in parts for position in part] == wanted
    assert all(len(part) == 1 or (part and not is_too_much(part)) for part in parts)
    assert all(is_too_much([*part, after[0]]) for part, after in pairwise(parts))
    rows = [row for part in parts for row in rows_of(decode_arrow(fetch, positions=part))]
    assert rows == [row for row in tuples_of(fetch, 0) if row[0] < end_offset]


@given(
    batches=st.integers(1, 12),
    count=st.sampled_from([1, 20, 70, 140]),
    key_bytes=st.sampled_from([None, 0, 3, 64]),
    value_bytes=st.sampled_from([None, 0, 1, 63, 64, 9000]),
    odd=st.none()
    | st.tuples(st.integers(0, 11), st.integers(0, 139), st.sampled_from([0, 7, 200])),
    times=st.sampled_from([[5], [5, 6], [5, 70, 9000, 2**22]]),
)
def test_batches_of_equal_records_are_the_same_as_columns_and_as_tuples(
    batches: int,
    count: int,
    key_bytes: int | None,
    value_bytes: int | None,
    odd: tuple[int, int, int] | None,
    times: list[int],
) -> None:
    fetch = b""
    for number in range(batches):
        value = None if value_bytes is None else bytes([number]) * value_bytes
        values = [value] * count
        if odd is not None and odd[0] == number and odd[1] < count:
            values[odd[1]] = b"x" * odd[2]
        fetch += encode_batch(
            values,
            keys=[None if key_bytes is None else b"k" * key_bytes] * count,
            timestamps_ms=[times[index % len(times)] for index in range(count)],
            base_offset=number * count,
        )
    assert rows_of(decode_arrow(fetch)) == tuples_of(fetch, 0)


def test_a_fetch_written_by_aiokafka_is_read() -> None:
    batches = []
    for codec in range(5):
        builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
        for index in range(100):
            builder.append(index, 1000 + index, b"k", b"value " * index, [("h", b"x")])
        batches.append(bytes(builder.build()))
    rows = rows_of(decode_arrow(b"".join(batches)))
    assert len(rows) == 500
    assert rows[:100] == rows[400:] == decode_records(batches[0])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_nothing_gives_an_empty_table_of_the_schema(kind: Any) -> None:
    records = decode_arrow(kind(b""))
    assert records.num_rows == 0
    assert records.schema == SCHEMA


def test_only_the_columns_asked_for_are_built() -> None:
    batch = bytes(encode_batch([b"a", b"b"], timestamps_ms=[1, 2], base_offset=8))
    records = decode_arrow(batch, columns=["offset", "value"], from_offset=9)
    assert records.schema.names == ["offset", "value"]
    assert records.to_pylist() == [{"offset": 9, "value": b"b"}]


def test_the_result_does_not_need_the_fetch_to_stay() -> None:
    fetch = bytearray(encode_batch([b"first", b"second"], timestamps_ms=1))
    records = decode_arrow(fetch)
    fetch[:] = bytes(len(fetch))
    assert records["value"].to_pylist() == [b"first", b"second"]


def test_a_flipped_bit_is_a_wrong_crc_unless_the_check_is_off() -> None:
    batch = encode_batch([b"value"], timestamps_ms=1)
    batch[-2] ^= 1
    with pytest.raises(CorruptBatch) as caught:
        decode_arrow(batch)
    assert caught.value.reason is Fault.CRC
    assert decode_arrow(batch, check_crc=False)["value"].to_pylist() == [b"valud"]


ANY_SIZE = (
    st.none() | st.binary(max_size=70) | st.sampled_from([b"x" * 8190, b"y" * 9000, b"z" * 70_000])
)
COLUMN = st.lists(st.none() | st.binary(max_size=70), min_size=1, max_size=90) | st.lists(
    ANY_SIZE, min_size=1, max_size=5
)
ONE_LENGTH = st.integers(0, 70).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=90)
)


@given(COLUMN | ONE_LENGTH, st.booleans(), st.sampled_from([Codec.NONE, Codec.ZSTD]), st.data())
def test_arrow_columns_encode_to_the_bytes_of_lists(
    values: list[bytes | None], is_keyed: bool, codec: Codec, data: st.DataObject
) -> None:
    size = len(values)
    keys = data.draw(st.lists(ANY_SIZE, min_size=size, max_size=size)) if is_keyed else None
    skipped = data.draw(st.integers(0, size - 1))
    batch = encode_arrow(
        pa.array(values, pa.binary()).slice(skipped),
        keys=None if keys is None else pa.array(keys, pa.binary()).slice(skipped),
        timestamp_ms=7,
        codec=codec,
        base_offset=3,
        producer_id=1,
        producer_epoch=2,
        base_sequence=4,
    )
    assert batch == encode_batch(
        values[skipped:],
        keys=None if keys is None else keys[skipped:],
        timestamps_ms=7,
        codec=codec,
        base_offset=3,
        producer_id=1,
        producer_epoch=2,
        base_sequence=4,
    )


@pytest.mark.parametrize(
    "values",
    [
        [b"v" * 8180],
        [b"v" * 8185],
        [b"v" * 8191],
        [b"v" * 8192],
        [b"v"] * 64 + [b"w"],
        [b"v"] * 8192,
        [b"v"] * 8193,
        [b"v"] * 8193 + [b"w" * 8193],
        [b"v" * 8185] * 65,
        [b"v" * 70_000] * 3,
        [b"v"] * (1 << 14),
        [b"v"] * ((1 << 14) + 1),
    ],
    ids=lambda values: f"{len(values)} of {len(values[0])} to {len(values[-1])}",
)
def test_arrow_columns_at_the_edge_of_the_tables(values: list[bytes]) -> None:
    batch = encode_arrow(pa.array(values, pa.binary()), timestamp_ms=7)
    assert batch == encode_batch(values, timestamps_ms=7)


def test_arrow_columns_of_unequal_length_are_refused() -> None:
    values = pa.array([b"a", b"b"], pa.binary())
    with pytest.raises(ValueError, match="keys"):
        encode_arrow(values, keys=values.slice(1), timestamp_ms=1)
    with pytest.raises(ValueError, match="0 records"):
        encode_arrow(values.slice(2), timestamp_ms=1)


def test_the_timestamp_type_is_known_for_each_record() -> None:
    stamped = encode_batch([b"a", b"b"], timestamps_ms=5)
    stamp_log_append_time(stamped, timestamp_ms=9)
    fetch = bytes(stamped + encode_batch([b"c", b"d", b"e"], timestamps_ms=7, base_offset=2))
    records = decode_arrow(fetch, columns=["is_log_append_time", "offset"], from_offset=1)
    records.validate(full=True)
    assert records["is_log_append_time"].to_pylist() == [True, False, False, False]
    assert "is_log_append_time" not in decode_arrow(fetch).schema.names
