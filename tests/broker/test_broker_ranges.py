"""SplitRanges over the wire: the pieces of a range, and refused ranges (W-4.23)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_protocol.messages.split_ranges import (
    PIECES_MAX,
    PartitionPieces,
    PartitionRange,
    SplitRangesRequest,
    SplitRangesResponse,
)
from millrace_server.testing import Broker
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import Wire, batch, connect, until

BATCHES = 40
MADE = batch(b"x" * 1_000, b"y" * 1_000)
SMALL_SEGMENTS = {"segment.bytes": str(10 * len(MADE))}


@pytest.fixture
async def filled(wire: Wire) -> Wire:
    """Topic `t`: in each of two partitions, 40 batches of two records in segments of ten."""
    await wire.create("t", partitions=2, configs=SMALL_SEGMENTS)
    for _ in range(BATCHES // 2):
        await wire.produce_all([("t", 0, MADE), ("t", 1, MADE)])
        await wire.produce_all([("t", 0, MADE), ("t", 1, MADE)])
    return wire


async def split(wire: Wire, *ranges: PartitionRange) -> tuple[PartitionPieces, ...]:
    return (await wire.ask(SplitRangesRequest(ranges), SplitRangesResponse)).partitions


def ends(result: PartitionPieces) -> list[int]:
    assert result.error_code == 0, result.error_message
    return [piece.end_offset for piece in result.pieces]


async def test_a_range_is_cut_the_same_before_and_after_a_restart(
    filled: Wire, broker: Broker
) -> None:
    """W-4.23.1: two batches reach one index interval, and five are asked for."""
    asked = PartitionRange("t", 1, 0, 2 * BATCHES, 5 * len(MADE))
    (result,) = await split(filled, asked)
    assert (result.topic, result.partition, result.leader_epoch) == ("t", 1, 0)
    # Each segment has ten batches, so its end is a boundary like those of the index, every two.
    assert ends(result)[-1] == 2 * BATCHES
    assert all(end % 4 == 0 for end in ends(result))
    sizes = [piece.size_bytes for piece in result.pieces]
    assert sum(sizes) == BATCHES * len(MADE)
    assert all(5 * len(MADE) <= size < 8 * len(MADE) for size in sizes[:-1])
    await broker.stop()
    await broker.start()
    async with connect(broker.port) as wire:
        assert await split(wire, asked) == (result,)


async def test_ranges_are_answered_each_for_itself_and_in_their_order(filled: Wire) -> None:
    """W-4.0.2, W-4.23.3"""
    end = 2 * BATCHES
    results = await split(
        filled,
        PartitionRange("t", 1, 0, end, 1 << 40),
        PartitionRange("nope", 0, 0, end, 1),
        PartitionRange("t", 7, 0, end, 1),
        PartitionRange("t", 0, 5, 5, 1),
        PartitionRange("t", 0, 8, end, 1 << 62),
        PartitionRange("t", 1, 0, end, 1 << 40),
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [r.error_code for r in results] == [0, unknown, unknown, 0, 0, 0]
    assert [(r.topic, r.partition) for r in results][:3] == [("t", 1), ("nope", 0), ("t", 7)]
    assert [[p.end_offset for p in r.pieces] for r in results] == [[end], [], [], [], [end], [end]]
    assert results[4].pieces[0].size_bytes == (BATCHES - 4) * len(MADE)


@pytest.mark.parametrize(
    ("start", "end", "piece_bytes", "code", "words"),
    [
        (0, 81, 1, ErrorCode.OFFSET_OUT_OF_RANGE, "Offset 81 is outside"),
        (81, 81, 1, ErrorCode.OFFSET_OUT_OF_RANGE, "Offset 81 is outside"),
        (-1, 80, 1, ErrorCode.OFFSET_OUT_OF_RANGE, "from 0 to 80"),
        (-(2**63), 2**63 - 1, 1, ErrorCode.OFFSET_OUT_OF_RANGE, "from 0 to 80"),
        (2, 1, 1, ErrorCode.INVALID_REQUEST, "begins at 2 and ends before that, at 1"),
        (0, 80, 0, ErrorCode.INVALID_REQUEST, "piece_bytes is 0"),
        (0, 80, -1, ErrorCode.INVALID_REQUEST, "piece_bytes is -1"),
        (0, 80, -(2**63), ErrorCode.INVALID_REQUEST, "piece_bytes"),
    ],
)
async def test_a_range_that_cannot_be_cut_is_refused_in_a_sentence(
    filled: Wire, start: int, end: int, piece_bytes: int, code: ErrorCode, words: str
) -> None:
    """W-4.23.3"""
    (result,) = await split(filled, PartitionRange("t", 0, start, end, piece_bytes))
    assert (result.error_code, result.pieces) == (code, ())
    assert words in (result.error_message or "")


async def test_a_full_answer_says_where_to_go_on(filled: Wire) -> None:
    """W-4.23.2"""
    end = 2 * BATCHES
    (whole,) = await split(filled, PartitionRange("t", 0, 0, end, 1))
    per_range = len(whole.pieces)
    asked = (PartitionRange("t", 0, 0, end, 1),) * 2_000
    results = await split(filled, *asked)
    assert sum(len(result.pieces) for result in results) == PIECES_MAX
    full, rest = divmod(PIECES_MAX, per_range)
    assert [ends(result) for result in results[:full]] == [ends(whole)] * full
    assert ends(results[full]) == ends(whole)[:rest]
    assert all(ends(result) == [] for result in results[full + 1 :])
    first_end = ends(whole)[0]
    (continued,) = await split(filled, PartitionRange("t", 0, first_end, end, 1))
    assert continued.pieces == whole.pieces[1:]


async def test_two_thousand_ranges_delay_no_other_request(filled: Wire, broker: Broker) -> None:
    """W-6.4: small requests of others are answered while the large one is being made."""
    async with connect(broker.port) as other:
        asked = (PartitionRange("t", 0, 0, 2 * BATCHES, 1 << 40),) * 2_000
        sent = filled.send(SplitRangesRequest(asked))
        large = asyncio.ensure_future(filled.answer(SplitRangesResponse, sent=sent))
        small = 0
        while not large.done():
            await other.offset("t", -1)
            small += 1
        assert small > 10
        assert [ends(result) for result in (await large).partitions] == [[80]] * 2_000


async def test_records_that_are_not_durable_are_beyond_the_high_watermark(tmp_path: Path) -> None:
    """W-4.23.3"""
    faults = Faults()
    async with node_on(tmp_path / "data", faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        await wire.produce("t", MADE)
        faults.may_sync.clear()
        partition = node.broker.partitions.get("t", 0)
        async with connect(node.address[1]) as producer:
            sent = producer.send(ProduceRequest(-1, 60_000, (ProducePartition("t", 0, MADE),)))
            await until(lambda: partition.log.end_offset == 4)
            refused, readable = await split(
                wire, PartitionRange("t", 0, 0, 4, 1), PartitionRange("t", 0, 0, 2, 1)
            )
            assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert "from 0 to 2" in (refused.error_message or "")
            assert ends(readable) == [2]
            faults.may_sync.set()
            await producer.answer(ProduceResponse, sent=sent)
        (durable,) = await split(wire, PartitionRange("t", 0, 0, 4, 1))
        assert ends(durable)[-1] == 4


async def test_a_deleted_topic_has_no_ranges(filled: Wire) -> None:
    await filled.delete("t")
    (result,) = await split(filled, PartitionRange("t", 0, 0, 1, 1))
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
