"""SplitRanges: a range of a partition's offsets in pieces of about as many bytes."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.log import Piece
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.services.request_context import RequestContext

PIECES_AT_ONCE = 50
"""Cut in one go, some 200 us; reading the indexes that this takes is as much again."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A range of offsets that is to be cut; its end is exclusive."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class SplitRange:
    """The first pieces of a range, and the leader epoch in which they were cut."""

    leader_epoch: int
    pieces: list[Piece]


class SplitRangeService:
    """Cuts ranges of partitions; knows only what consumers may read."""

    def __init__(self, partitions: PartitionTable, scheduler: FairScheduler) -> None:
        self._partitions = partitions
        self._scheduler = scheduler

    async def split(
        self, context: RequestContext, wanted: OffsetRange, *, piece_bytes: int, pieces_max: int
    ) -> SplitRange:
        """The first `pieces_max` pieces of a range.

        Raises `ApiError`, also when retention has taken meanwhile what is still to be cut.
        """
        context.check_topic(Operation.READ, wanted.topic)
        try:
            partition = self._partitions.get(wanted.topic, wanted.partition)
            _check(partition, wanted, piece_bytes)
            pieces = await self._cut(partition, wanted, piece_bytes, pieces_max)
        except CORE_ERRORS as error:
            raise as_api_error(error) from error
        return SplitRange(partition.leader_epoch, pieces)

    async def _cut(
        self, partition: Partition, wanted: OffsetRange, piece_bytes: int, pieces_max: int
    ) -> list[Piece]:
        pieces: list[Piece] = []
        reached = wanted.start_offset
        while reached < wanted.end_offset and len(pieces) < pieces_max:
            if pieces:
                await self._scheduler.yield_()
            pieces += partition.split(
                reached,
                end_offset=wanted.end_offset,
                piece_bytes=piece_bytes,
                pieces_max=min(PIECES_AT_ONCE, pieces_max - len(pieces)),
            )
            reached = pieces[-1].end_offset
        return pieces


def _check(partition: Partition, wanted: OffsetRange, piece_bytes: int) -> None:
    if piece_bytes < 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"piece_bytes is {piece_bytes}; it is 1 byte at least"
        )
    if wanted.start_offset > wanted.end_offset:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The range begins at {wanted.start_offset} and ends before that, at "
            f"{wanted.end_offset}",
        )
    partition.check_end_known()
    partition.check_readable(wanted.start_offset)
    partition.check_readable(wanted.end_offset)
