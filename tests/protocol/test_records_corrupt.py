"""Malformed records under a right CRC.

Both decoders are asked about each, because both must give the same answer: the records, or
`CorruptBatch`.
"""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    CorruptBatch,
    Fault,
    Record,
    compress,
    decode_fetch,
    decode_records,
    encode_batch,
    encode_records,
    read_header,
    seal,
)
from millrace_protocol.records.arrow import decode_arrow
from millrace_protocol.records.compression import EXPANSION_MAX
from millrace_protocol.records.varint import varint


def tuples(batch: bytes) -> list[Record]:
    return [record for chunk, _ in decode_fetch(batch) for record in chunk]


def arrow(batch: bytes) -> list[Record]:
    return [
        (
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in with_integer_times(decode_arrow(batch)).to_pylist()
    ]


def with_integer_times(records: Any) -> Any:
    """Timestamps as they are in the batch; Python's datetime ends in the year 9999."""
    index = records.schema.get_field_index("timestamp")
    return records.set_column(index, "timestamp", records["timestamp"].cast("int64"))


Decoder = Callable[[bytes], list[Record]]
DECODERS: dict[str, Decoder] = {"tuples": tuples, "arrow": arrow, "one batch": decode_records}
every_decoder = pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS.keys())


def sealed(payload: bytes, *, count: int = 1, last_offset_delta: int | None = None) -> bytes:
    """A batch with a right CRC around any payload."""
    header = BatchHeader(
        base_offset=100,
        batch_length=HEADER_SIZE - 12 + len(payload),
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp=1000,
        max_timestamp=1000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    batch = bytearray(header.pack() + payload)
    seal(batch)
    return bytes(batch)


def record(
    *,
    time: bytes = varint(0),
    offset: bytes = varint(0),
    key: bytes = varint(-1),
    value: bytes = varint(1) + b"v",
    headers: bytes = varint(0),
    length: bytes | None = None,
    extra: bytes = b"",
) -> bytes:
    """One record, any of whose fields may be replaced by other bytes."""
    body = b"\x00" + time + offset + key + value + headers + extra
    return (varint(len(body)) if length is None else length) + body


@every_decoder
def test_the_record_that_the_lies_are_made_of_is_sound(decode: Decoder) -> None:
    assert decode(sealed(record())) == [(100, 1000, None, b"v", ())]


ENDLESS = b"\xff" * 11 + b"\x01"
LIES = {
    "no bytes": b"",
    "length 0": record(length=varint(0)),
    "length negative": record(length=varint(-7)),
    "length one too short": record(length=varint(6)),
    "length one too long": record(length=varint(8)),
    "length huge": record(length=varint(2**31 - 1)),
    "length beyond 64 bits": record(length=b"\xff" * 9 + b"\x02"),
    "length endless": record(length=ENDLESS),
    "length of the fast path with its sign set": record(length=b"\x0f"),
    "length cut short": b"\x8e",
    "record cut short": record()[:-1],
    "record of one byte": b"\x02\x00",
    "bytes after the last record": record() + b"\x00",
    "two records where one is announced": record() + record(offset=varint(1)),
    "extra byte inside the record": record(extra=b"\x00"),
    "time endless": record(time=ENDLESS),
    "time out of range": record(time=varint(2**63 - 1)),
    "offset not the expected": record(offset=varint(1)),
    "offset negative": record(offset=varint(-1)),
    "offset endless": record(offset=ENDLESS),
    "key length -2": record(key=varint(-2)),
    "key length -65": record(key=varint(-65)),
    "key beyond the record": record(key=varint(100)),
    "key beyond the batch": record(key=varint(2**31 - 1)),
    "key beyond 63 bits": record(key=varint(2**63 - 1)),
    "key endless": record(key=ENDLESS),
    "value length -2": record(value=varint(-2)),
    "value beyond the record by one": record(value=varint(2) + b"v"),
    "value huge": record(value=varint(2**40)),
    "value endless": record(value=ENDLESS),
    "header count negative": record(headers=varint(-1)),
    "header count huge": record(headers=varint(2**31 - 1)),
    "header count endless": record(headers=ENDLESS),
    "header without a name": record(headers=varint(1) + varint(-1) + varint(-1)),
    "header name not UTF-8": record(headers=varint(1) + varint(1) + b"\xff" + varint(-1)),
    "header name beyond the record": record(headers=varint(1) + varint(9) + b"n" + varint(-1)),
    "header value beyond the record": record(headers=varint(1) + varint(1) + b"n" + varint(9)),
    "header value -2": record(headers=varint(1) + varint(1) + b"n" + varint(-2)),
    "headers cut short": record(headers=varint(2) + varint(1) + b"n" + varint(-1)),
}


@every_decoder
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_the_only_record_is_refused(decode: Decoder, lie: str) -> None:
    payload = LIES[lie].ljust(7, b"\x7f") if len(LIES[lie]) < 7 else LIES[lie]
    with pytest.raises(CorruptBatch, match="record 0") as caught:
        decode(sealed(payload))
    assert caught.value.reason is Fault.PAYLOAD
    assert caught.value.position >= HEADER_SIZE


@every_decoder
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_between_sound_records_and_batches_is_refused(decode: Decoder, lie: str) -> None:
    payload = record() + LIES[lie] + record(value=varint(9) + b"nine more") * 3
    if decode is decode_records:
        batch = sealed(payload, count=5) + sealed(record())
    else:
        batch = sealed(record()) + sealed(payload, count=5) + sealed(record())
    with pytest.raises(CorruptBatch) as caught:
        decode(batch)
    assert caught.value.reason is Fault.PAYLOAD


@every_decoder
@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 5), (-1, 1)])
def test_offsets_of_a_compacted_batch_rise_and_stay_inside_it(
    decode: Decoder, deltas: tuple[int, int]
) -> None:
    payload = b"".join(record(offset=varint(delta)) for delta in deltas)
    with pytest.raises(CorruptBatch, match="offset delta"):
        decode(sealed(payload, count=2, last_offset_delta=4))


@every_decoder
def test_records_do_not_reach_into_the_next_batch(decode: Decoder) -> None:
    following = sealed(record())
    value = varint(len(following)) + following
    whole = record(value=value)
    batch = sealed(whole[: -len(following) - 1]) + following + b"\x00"
    with pytest.raises(CorruptBatch, match="record 0"):
        decode(batch)


@every_decoder
def test_overlong_varints_are_decoded(decode: Decoder) -> None:
    payload = record(time=b"\x82\x80\x00", offset=b"\x80\x00", key=b"\x82\x00k")
    assert decode(sealed(payload)) == [(100, 1001, b"k", b"v", ())]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@every_decoder
def test_a_lie_behind_compression_is_refused_at_the_batch(decode: Decoder, codec: Codec) -> None:
    for payload in (record(offset=varint(9)), record() + b"\x00", b"", bytes(100)):
        batch = bytearray(sealed(compress(payload, codec)))
        header = read_header(batch)
        header.attributes = codec
        batch[:HEADER_SIZE] = header.pack()
        seal(batch)
        with pytest.raises(CorruptBatch) as caught:
            decode(bytes(batch))
        assert (caught.value.reason, caught.value.position) == (Fault.PAYLOAD, 0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@every_decoder
def test_a_payload_that_is_no_stream_of_its_codec_is_refused(decode: Decoder, codec: Codec) -> None:
    batch = bytearray(sealed(record()))
    header = read_header(batch)
    header.attributes = codec
    batch[:HEADER_SIZE] = header.pack()
    seal(batch)
    with pytest.raises(CorruptBatch, match=codec.name.lower()):
        decode(bytes(batch))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_refused_within_its_limit(codec: Codec) -> None:
    bomb = bytes(encode_batch([bytes(16 << 20)], timestamps_ms=1, codec=codec))
    limits: list[Callable[[], Any]] = [
        lambda: decode_records(bomb, limit_bytes=1 << 20),
        lambda: list(decode_fetch(bomb, limit_bytes=1 << 20)),
        lambda: decode_arrow(bomb, limit_bytes=1 << 20),
        lambda: decode_arrow(bomb + bomb, limit_bytes=17 << 20),
    ]
    for decode in limits[:3]:
        tracemalloc.start()
        try:
            with pytest.raises(CorruptBatch, match="limit of 1048576"):
                decode()
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()
    with pytest.raises(CorruptBatch, match="more than the limit"):
        limits[3]()


def test_a_huge_count_of_headers_takes_time_and_memory_in_proportion() -> None:
    one = varint(0) + varint(0)
    batch = sealed(record(headers=varint(100_000) + one * 100_000))
    assert tuples(batch) == arrow(batch)
    assert len(tuples(batch)[0][4]) == 100_000


SOUND = [
    bytes(encode_batch([b"a", b"b" * 70, None], keys=[None, b"k", b""], timestamps_ms=[9, 5, 400])),
    bytes(
        encode_batch(
            [b"a", b"b"],
            headers=[[("name", b"x"), ("n", None)], []],
            timestamps_ms=3,
            base_offset=7,
        )
    ),
    bytes(
        encode_records(
            [(4, 8, b"k", b"v", ()), (70, 9, None, b"w", ())], base_offset=2, last_offset=90
        )
    ),
]


def outcome(decode: Decoder, batch: bytes) -> list[Record] | None:
    try:
        return decode(batch)
    except CorruptBatch as corrupt:
        assert corrupt.reason is Fault.PAYLOAD
        return None


@pytest.mark.parametrize("sound", SOUND, ids=["dense", "headers", "compacted"])
def test_every_resealed_bit_flip_gets_one_answer_from_all_decoders(sound: bytes) -> None:
    refused = 0
    for index in range(HEADER_SIZE, len(sound)):
        for bit in range(8):
            flipped = bytearray(sound)
            flipped[index] ^= 1 << bit
            seal(flipped)
            answers = [outcome(decode, bytes(flipped)) for decode in DECODERS.values()]
            assert answers[0] == answers[1] == answers[2], (index, bit)
            refused += answers[0] is None
    assert refused > 50


@pytest.mark.parametrize("sound", SOUND, ids=["dense", "headers", "compacted"])
@given(st.data())
def test_any_resealed_edit_gets_one_answer_from_all_decoders(
    sound: bytes, data: st.DataObject
) -> None:
    payload = bytearray(sound[HEADER_SIZE:])
    start = data.draw(st.integers(0, len(payload)))
    end = data.draw(st.integers(start, min(start + 4, len(payload))))
    payload[start:end] = data.draw(st.binary(max_size=12))
    header = read_header(sound)
    header.batch_length = HEADER_SIZE - 12 + len(payload)
    edited = bytearray(header.pack() + payload)
    seal(edited)
    if header.record_count * 7 > len(payload):
        return
    answers = [outcome(decode, bytes(edited)) for decode in DECODERS.values()]
    assert answers[0] == answers[1] == answers[2]


def test_a_claimed_count_of_records_costs_no_memory() -> None:
    batch = encode_batch([b"v" * 9] * 300, timestamps_ms=1, codec=Codec.ZSTD)
    header = read_header(batch)
    header.record_count = (len(batch) - HEADER_SIZE) * EXPANSION_MAX[Codec.ZSTD] // 7
    header.last_offset_delta = header.record_count - 1
    batch[:HEADER_SIZE] = header.pack()
    seal(batch)
    for decode in (decode_records, tuples):
        tracemalloc.start()
        try:
            with pytest.raises(CorruptBatch, match="record 300 runs past the end"):
                decode(bytes(batch))
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
