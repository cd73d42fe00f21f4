"""The pieces of a range, from a real broker, against what a consumer reads of each."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

from millrace import Admin, Consumer, Producer, TopicPartition
from millrace import sync as millrace_sync
from millrace.admin import Piece
from millrace.errors import OffsetOutOfRange, UnknownTopicOrPartition
from millrace_server.testing import Broker

COUNT = 3_000
WHERE = TopicPartition("t", 1)


async def read(broker: Broker, piece: Piece) -> list[int]:
    """The offsets of a piece, as a reader that knows only the piece reads them."""
    async with Consumer(broker.servers, start="earliest") as consumer:
        consumer.assign([WHERE])
        consumer.seek(WHERE, piece.start_offset)
        offsets: list[int] = []
        while not offsets or offsets[-1] < piece.end_offset - 1:
            offsets.append((await consumer.getone()).offset)
    return offsets


async def test_reading_the_pieces_reads_each_record_once() -> None:
    async with Broker() as broker:
        async with (
            Admin(broker.servers) as admin,
            Producer(broker.servers, batch_bytes=4_000) as producer,
        ):
            await admin.create_topic("t", partitions=2, configs={"segment.bytes": 200_000})
            values = [b"%06d" % number * 50 for number in range(COUNT)]
            await producer.send_many("t", values, partition=1)
            (start,) = (await admin.list_offsets({WHERE: "earliest"})).values()
            (end,) = (await admin.list_offsets({WHERE: "latest"})).values()
            bounds = {WHERE: (start.offset, end.offset), ("t", 0): (0, 0)}
            pieces = await admin.split_ranges(bounds, piece_bytes=150_000)
        assert pieces[TopicPartition("t", 0)] == []
        cut = pieces[WHERE]
        assert len(cut) >= 5
        assert all(150_000 <= piece.size_bytes < 150_000 + 4_096 + 4_000 for piece in cut[:-1])
        log = broker.node.broker.partitions.get(*WHERE).log
        assert log.segment_count > 3
        assert sum(piece.size_bytes for piece in cut) == log.size_bytes
        offsets = await asyncio.gather(*(read(broker, piece) for piece in cut))
        assert list(chain.from_iterable(offsets)) == list(range(COUNT))
        await asyncio.to_thread(check_sync, broker.servers, bounds, pieces)


def check_sync(
    servers: str,
    bounds: dict[TopicPartition | tuple[str, int], tuple[int, int]],
    pieces: dict[TopicPartition, list[Piece]],
) -> None:
    with millrace_sync.Admin(servers) as admin:
        assert admin.split_ranges(bounds, piece_bytes=150_000) == pieces


async def test_missing_ranges_raise_typed_errors() -> None:
    async with Broker() as broker, Admin(broker.servers) as admin:
        await admin.create_topic("t", partitions=2)
        with pytest.raises(OffsetOutOfRange, match="Offset 5 is outside the log"):
            await admin.split_ranges({WHERE: (0, 5)}, piece_bytes=1)
        with pytest.raises(UnknownTopicOrPartition, match="t has 2"):
            await admin.split_ranges({("t", 2): (0, 0)}, piece_bytes=1)
        with pytest.raises(UnknownTopicOrPartition):
            await admin.split_ranges({("nope", 0): (0, 0)}, piece_bytes=1)
