"""`compression.type`: batches that the broker compresses anew."""

from __future__ import annotations

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.records import Codec, encode_batch, read_header, seal
from millrace_protocol.records.header import HEADER_SIZE
from tests.broker.wire import Wire, batch, records_of, values_of

SENT = {codec.name.lower(): codec for codec in Codec}
STORED = {"uncompressed": Codec.NONE} | {k: v for k, v in SENT.items() if v is not Codec.NONE}
VALUES = [b"%d compressible " % n * 20 for n in range(50)]


def compressed(codec: Codec, values: list[bytes] = VALUES, **options: int) -> bytes:
    return bytes(
        encode_batch(list(values), timestamps_ms=1_000, codec=codec, **options)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("setting", STORED)
async def test_every_batch_has_the_codec_of_its_topic(wire: Wire, setting: str) -> None:
    await wire.create("t", configs={"compression.type": setting})
    producer_id, _ = await wire.producer_id()
    for number, codec in enumerate(SENT.values()):
        sequence = number * 50
        result = await wire.produce(
            "t",
            compressed(codec, producer_id=producer_id, producer_epoch=0, base_sequence=sequence),
        )
        assert (result.error_code, result.base_offset) == (0, number * 50)
    for number in range(len(SENT)):
        found = await wire.fetch("t", number * 50)
        header = read_header(bytes(found.records))
        assert header.codec is STORED[setting]
        assert (header.producer_id, header.base_sequence) == (producer_id, number * 50)
        records = records_of(found, offset=number * 50)[:50]
        assert [(offset - number * 50, value, time) for offset, time, _, value, _ in records] == [
            (offset, value, 1_000) for offset, value in enumerate(VALUES)
        ]


async def test_what_becomes_no_smaller_stays_as_it_is(wire: Wire) -> None:
    await wire.create("t", configs={"compression.type": "zstd"})
    assert (await wire.produce("t", batch(b"a"))).error_code == 0
    found = await wire.fetch("t", 0)
    assert read_header(bytes(found.records)).codec is Codec.NONE
    assert values_of(found) == [b"a"]


async def test_pipelined_batches_stay_in_order_whatever_their_codec(wire: Wire) -> None:
    """W-2.6"""
    await wire.create("t", configs={"compression.type": "zstd"})
    sent = [
        compressed(Codec.ZSTD if n % 2 else Codec.NONE, [b"%d" % n, bytes((100 - n) * 9_000)])
        for n in range(40)
    ]
    for made in sent:
        wire.send(ProduceRequest(1, 30_000, (ProducePartition("t", 0, made),)))
    results = [(await wire.answer(ProduceResponse)).partitions[0] for _ in sent]
    assert [(r.error_code, r.base_offset) for r in results] == [(0, 2 * n) for n in range(40)]


async def test_pipelined_requests_stay_in_order_when_one_waits_for_another_partition(
    wire: Wire,
) -> None:
    """W-2.6"""
    await wire.create("looked-into", configs={"compression.type": "zstd"})
    await wire.create("t")
    for n in range(20):
        slow = ProducePartition("looked-into", 0, compressed(Codec.NONE, [bytes(500_000)]))
        parts = (ProducePartition("t", 0, batch(b"%d" % n)),)
        wire.send(ProduceRequest(1, 30_000, parts if n % 2 else (slow, *parts)))
    results = [(await wire.answer(ProduceResponse)).partitions[-1] for _ in range(20)]
    assert [(r.error_code, r.base_offset) for r in results] == [(0, n) for n in range(20)]


async def test_a_payload_that_is_broken_or_too_large_is_refused(wire: Wire) -> None:
    await wire.create("t", configs={"compression.type": "lz4", "max.message.bytes": "2000000"})
    broken = bytearray(compressed(Codec.ZSTD))
    broken[HEADER_SIZE + 4 :] = bytes(len(broken) - HEADER_SIZE - 4)
    seal(broken)
    bomb = compressed(Codec.ZSTD, [bytes(200 << 20)])
    assert len(bomb) < 2_000_000
    for made in (bytes(broken), bomb):
        assert (await wire.produce("t", made)).error_code == ErrorCode.INVALID_RECORD
    plain = await wire.create("u", configs={"compression.type": "uncompressed"})
    assert plain.error_code == 0
    refused = await wire.produce("u", compressed(Codec.ZSTD, [bytes(5 << 20)]))
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await wire.produce("t", compressed(Codec.ZSTD))).base_offset == 0


async def test_a_setting_that_is_no_codec_is_refused(wire: Wire) -> None:
    created = await wire.create("t", configs={"compression.type": "brotli"})
    assert created.error_code == ErrorCode.INVALID_CONFIG
