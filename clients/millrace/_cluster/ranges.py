"""Asks the leaders of partitions to cut ranges of offsets into pieces of about equal bytes.

Owns asking again where an answer was full (wire_spec.md W-4.23.2), and the check that the pieces
of a range follow each other to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from millrace._cluster.cluster import Cluster
from millrace._cluster.connection import Connection
from millrace._cluster.leaders import ask_leaders
from millrace.errors import ProtocolViolation
from millrace.records import TopicPartition
from millrace_protocol.messages.split_ranges import (
    PartitionPieces,
    PartitionRange,
    RangePiece,
    SplitRangesRequest,
    SplitRangesResponse,
)

PIECES_MAX = 100_000
"""Pieces of all ranges of a call: more tasks than a scheduler likes, in some 10 MB."""


async def split_ranges(
    cluster: Cluster,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    piece_bytes: int,
    timeout_ms: int,
) -> dict[TopicPartition, list[RangePiece]]:
    """The pieces of each range `(start_offset, end_offset)`, the end exclusive.

    Raises `ValueError` for sizes and ranges that cannot be, or when there are more than
    `PIECES_MAX` pieces, and the error of a partition.
    """
    if piece_bytes < 1:
        raise ValueError(f"piece_bytes={piece_bytes}: must be at least 1")
    for where, (start, end) in ranges.items():
        if start > end:
            raise ValueError(f"{where}: the range begins at {start} and ends before that, at {end}")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    found: dict[TopicPartition, list[RangePiece]] = {where: [] for where in ranges}
    unfinished = {
        where: PartitionRange(*where, start, end, piece_bytes)
        for where, (start, end) in ranges.items()
    }
    piece_count = 0
    while unfinished:
        left_ms = max(1, int((deadline - loop.time()) * 1000))
        answers = await ask_leaders(cluster, unfinished, _ask, timeout_ms=left_ms)
        for where, answer in answers.items():
            asked = unfinished.pop(where)
            _check_pieces(where, asked, answer)
            found[where] += answer.pieces
            reached = answer.pieces[-1].end_offset if answer.pieces else asked.start_offset
            if reached < asked.end_offset:
                unfinished[where] = replace(asked, start_offset=reached)
        count = sum(len(answer.pieces) for answer in answers.values())
        piece_count += count
        if unfinished and not count:
            raise ProtocolViolation(f"the broker cuts no piece of {next(iter(unfinished))}")
        if piece_count > PIECES_MAX:
            raise ValueError(
                f"piece_bytes={piece_bytes} makes more than {PIECES_MAX:,} pieces: "
                "choose larger ones"
            )
    return found


def _check_pieces(where: TopicPartition, asked: PartitionRange, answer: PartitionPieces) -> None:
    reached = asked.start_offset
    for piece in answer.pieces:
        if not reached < piece.end_offset <= asked.end_offset:
            raise ProtocolViolation(
                f"{where}: the broker cuts [{asked.start_offset}, {asked.end_offset}) at "
                f"{piece.end_offset}, behind a piece that ends at {reached}"
            )
        reached = piece.end_offset


async def _ask(
    connection: Connection, asked: tuple[PartitionRange, ...], timeout_ms: int
) -> tuple[PartitionPieces, ...]:
    request = SplitRangesRequest(asked)
    return (await connection.call(request, SplitRangesResponse, timeout_ms=timeout_ms)).partitions
