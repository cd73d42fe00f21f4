"""Asking for the pieces of ranges: full answers, brokers that move or lie, and many partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from millrace import Admin, TopicPartition
from millrace._cluster import ranges
from millrace.admin import Piece
from millrace.errors import ProtocolViolation
from millrace_protocol.api import ApiKey
from millrace_protocol.messages.list_offsets import ListOffsetsRequest
from millrace_protocol.messages.split_ranges import (
    PartitionPieces,
    RangePiece,
    SplitRangesRequest,
    SplitRangesResponse,
)
from tests.clients.fake_broker import FakeBroker, Handler

BATCHES = 20
ONE = TopicPartition("one", 0)
TWO = TopicPartition("one", 1)


def fill(broker: FakeBroker) -> int:
    """Twenty batches of two records in each of both partitions; returns the size of one."""
    for _ in range(BATCHES):
        broker.fill("one", 0, [b"a", b"b"])
        broker.fill("one", 1, [b"a", b"b"])
    return len(broker.logs[ONE].batches[0])


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"one": 2}) as broker:
        yield broker


def at_most(count: int) -> object:
    """A broker whose answers are full with so many pieces."""

    async def answer(request: SplitRangesRequest, default: Handler) -> SplitRangesResponse:
        whole = default(request)
        assert isinstance(whole, SplitRangesResponse)
        left, results = count, []
        for result in whole.partitions:
            pieces = result.pieces[:left]
            left -= len(pieces)
            results.append(replace(result, pieces=pieces))
        return SplitRangesResponse(tuple(results))

    return answer


@pytest.mark.parametrize("count", [1, 3, 7, 100])
async def test_full_answers_are_continued_until_all_ranges_are_whole(
    broker: FakeBroker, count: int
) -> None:
    """W-4.23.2"""
    size = fill(broker)
    broker.script(ApiKey.SPLIT_RANGES, at_most(count))  # type: ignore[arg-type]
    async with Admin(broker.address) as admin:
        pieces = await admin.split_ranges(
            {ONE: (0, 40), ("one", 1): (2, 36), ("one", 0): (0, 40)}, piece_bytes=2 * size
        )
    assert pieces == {
        ONE: [Piece(start, start + 4, 2 * size) for start in range(0, 40, 4)],
        TWO: [Piece(start, start + 4, 2 * size) for start in range(2, 34, 4)]
        + [Piece(34, 36, size)],
    }


async def test_empty_ranges_have_no_pieces(broker: FakeBroker) -> None:
    fill(broker)
    async with Admin(broker.address) as admin:
        assert await admin.split_ranges({ONE: (4, 4), TWO: (0, 0)}, piece_bytes=1) == {
            ONE: [],
            TWO: [],
        }
        assert await admin.split_ranges({}, piece_bytes=1) == {}


async def test_the_leader_is_asked_and_followed_where_it_goes(broker: FakeBroker) -> None:
    size = fill(broker)
    async with FakeBroker({"one": 2}, node_id=1) as other:
        leader = 0
        for each, peer in ((broker, other), (other, broker)):
            each.leader_of = lambda topic, partition: leader
            each.peers = {peer.node_id: (peer.host, peer.port)}
        other.logs = broker.logs
        async with Admin(broker.address, retry_backoff_ms=1) as admin:
            before = await admin.split_ranges({ONE: (0, 40)}, piece_bytes=size)
            leader = 1
            assert await admin.split_ranges({ONE: (0, 40)}, piece_bytes=size) == before
        assert len(before[ONE]) == BATCHES
        assert other.count(ApiKey.SPLIT_RANGES) == 1


@pytest.mark.parametrize(
    "ends", [[0], [4, 4], [4, 2], [41], [4, 80], [-1]], ids=lambda ends: str(ends)
)
async def test_pieces_that_do_not_follow_each_other_are_refused(
    broker: FakeBroker, ends: list[int]
) -> None:
    pieces = tuple(RangePiece(end, 1) for end in ends)
    lie = SplitRangesResponse((PartitionPieces("one", 0, 0, None, 0, pieces),))
    broker.script(ApiKey.SPLIT_RANGES, lambda request, default: lie)
    async with Admin(broker.address) as admin:
        with pytest.raises(ProtocolViolation, match=r"one-0.* cuts \[0, 40\) at"):
            await admin.split_ranges({ONE: (0, 40)}, piece_bytes=1)


async def test_a_broker_that_cuts_nothing_or_answers_something_else_is_not_asked_for_ever(
    broker: FakeBroker,
) -> None:
    async with Admin(broker.address) as admin:
        broker.script(ApiKey.SPLIT_RANGES, at_most(0))  # type: ignore[arg-type]
        with pytest.raises(ProtocolViolation, match="cuts no piece of one-0"):
            await admin.split_ranges({ONE: (0, 40)}, piece_bytes=1)
        broker.script(ApiKey.SPLIT_RANGES, lambda request, default: SplitRangesResponse(()))
        with pytest.raises(ProtocolViolation, match="asked about one-0 and does not answer"):
            await admin.split_ranges({ONE: (0, 40)}, piece_bytes=1)


async def test_invalid_ranges_are_refused_before_any_request(broker: FakeBroker) -> None:
    async with Admin(broker.address) as admin:
        with pytest.raises(ValueError, match="piece_bytes=0: must be at least 1"):
            await admin.split_ranges({ONE: (0, 1)}, piece_bytes=0)
        with pytest.raises(ValueError, match=r"one-0: the range begins at 2 .* at 1"):
            await admin.split_ranges({ONE: (2, 1)}, piece_bytes=1)
    assert broker.count(ApiKey.SPLIT_RANGES) == 0


async def test_too_many_pieces_are_an_error_with_a_remedy(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker)
    monkeypatch.setattr(ranges, "PIECES_MAX", BATCHES - 1)
    async with Admin(broker.address) as admin:
        with pytest.raises(ValueError, match="more than 19 pieces: choose larger ones"):
            await admin.split_ranges({ONE: (0, 40)}, piece_bytes=1)


async def test_more_partitions_than_a_request_may_name_are_asked_for_in_several() -> None:
    """W-6.4"""
    wheres = [TopicPartition("wide", number) for number in range(2_001)]
    async with FakeBroker({"wide": 2_001}) as broker, Admin(broker.address) as admin:
        offsets = await admin.list_offsets(dict.fromkeys(wheres, "latest"))
        assert [offsets[where].offset for where in wheres] == [0] * 2_001
        pieces = await admin.split_ranges(dict.fromkeys(wheres, (0, 0)), piece_bytes=1)
        assert pieces == {where: [] for where in wheres}
        named = [
            len(request.partitions)
            for _, request in broker.requests
            if isinstance(request, ListOffsetsRequest | SplitRangesRequest)
        ]
    assert sorted(named) == [1, 1, 2_000, 2_000]
