"""Pieces of ranges; each is one task.

Owns the arithmetic of their number and size. Sizes come from the broker's offset index, which
`planner` asks for. Pieces that the index cannot cut are cut by record count.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from millrace_spark.errors import OptionError
from millrace_spark.options.read_options import PARTITIONS_MAX, ReadOptions
from millrace_spark.reading.ranges import OffsetRange


@dataclass(frozen=True, slots=True)
class Piece:
    """A range, and its bytes on the broker's disk."""

    wanted: OffsetRange
    size_bytes: int


def target_bytes(sizes: Sequence[int], options: ReadOptions) -> int:
    """The largest size of a piece, for ranges of these sizes.

    Raises `OptionError` for more than `PARTITIONS_MAX` pieces.
    """
    limit = options.max_partition_bytes
    if sum(size // limit for size in sizes) > PARTITIONS_MAX:
        raise OptionError(
            "maxPartitionBytes",
            f"{limit} makes more than {PARTITIONS_MAX} Spark partitions; raise it",
        )
    return max(1, min(limit, -(-sum(sizes) // (options.min_partitions or 1))))


def joined(chunks: Sequence[Piece], target_bytes: int) -> list[Piece]:
    """The chunks of one range, joined to the fewest pieces of `target_bytes` and of equal size.

    A chunk stays whole, so sizes differ by one chunk at most.
    """
    total = sum(chunk.size_bytes for chunk in chunks)
    count = max(1, -(-total // target_bytes))
    pieces: list[Piece] = []
    reached = 0
    for chunk in chunks:
        middle = reached + chunk.size_bytes // 2
        if len(pieces) == count or (pieces and middle * count < total * len(pieces)):
            last = pieces[-1]
            pieces[-1] = Piece(
                replace(last.wanted, end_offset=chunk.wanted.end_offset),
                last.size_bytes + chunk.size_bytes,
            )
        else:
            pieces.append(chunk)
        reached += chunk.size_bytes
    return pieces


def split(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """The range in `count` pieces whose lengths differ by at most 1; `count <= len(whole)`."""
    for index in range(count):
        yield replace(
            whole,
            start_offset=whole.start_offset + len(whole) * index // count,
            end_offset=whole.start_offset + len(whole) * (index + 1) // count,
        )


def at_most(ranges: Sequence[OffsetRange], records_max: int) -> list[OffsetRange]:
    """The ranges in pieces of at most `records_max`.

    Raises `OptionError` for more than `PARTITIONS_MAX` pieces.
    """
    counts = [-(-len(whole) // records_max) for whole in ranges]
    if sum(counts) > PARTITIONS_MAX:
        raise OptionError(
            "maxRecordsPerPartition",
            f"{records_max} makes more than {PARTITIONS_MAX} Spark partitions; raise it",
        )
    return [
        piece for whole, count in zip(ranges, counts, strict=True) for piece in split(whole, count)
    ]


def at_least(pieces: Sequence[Piece], count_min: int) -> list[OffsetRange]:
    """The ranges of the pieces; the largest are cut by records until there are `count_min`.

    There are fewer if there are fewer records. Keeps the order.
    """
    counts = [1] * len(pieces)
    largest = [(-piece.size_bytes, index) for index, piece in enumerate(pieces)]
    heapq.heapify(largest)
    missing = count_min - len(pieces)
    while missing > 0 and largest:
        _, index = heapq.heappop(largest)
        if counts[index] < len(pieces[index].wanted):
            counts[index] += 1
            missing -= 1
            heapq.heappush(largest, (-(pieces[index].size_bytes // counts[index]), index))
    return [
        part
        for piece, count in zip(pieces, counts, strict=True)
        for part in split(piece.wanted, count)
    ]
