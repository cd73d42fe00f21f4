"""The durable batches of a log, for a scrub that checks them against their CRCs.

Owns the order in which a segment is checked, in chunks, and where to go on behind a corrupt range.
Refuses to know files, pace and threads: the broker's scrub brings them.
"""

from __future__ import annotations

from millrace_server.environment.seams import ReadableFile
from millrace_server.log.chain import SegmentChain
from millrace_server.log.errors import CorruptLog
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.segment import LOG_SUFFIX, Segment


class DurableSegment:
    """The batches of a segment up to `end`, which are durable. Belongs to the log's event loop,
    but for `check`; `position` is where the next piece begins."""

    __slots__ = ("_chain", "_end", "_next", "_segment")

    def __init__(self, chain: SegmentChain, segment: Segment, end: Boundary) -> None:
        self._chain = chain
        self._segment = segment
        self._next = Boundary(0, segment.base_offset)
        self._end = end

    @property
    def path(self) -> str:
        """The file, for `Disk.open`; it is gone when retention has removed the segment."""
        return self._segment.path(LOG_SUFFIX)

    @property
    def position(self) -> int:
        """Everything before it was looked at."""
        return self._next.position

    @property
    def is_done(self) -> bool:
        """Whether all was looked at."""
        return self._next.position >= self._end.position

    def check(self, file: ReadableFile, size_bytes: int) -> None:
        """Checks the next batches, `size_bytes` or a little more. Blocking.

        Raises `CorruptLog`, for `skip`, and `OSError`.
        """
        end = self._end.position
        until = min(self.position + size_bytes, end)
        self._next = self._segment.check(file, self._next, until, end_position=end)

    def skip(self, found: CorruptLog) -> None:
        """Remembers what `check` found, and goes on behind it."""
        self._chain.found_corruption(self._segment, found)
        known = self._segment.corrupt_ranges.from_position(found.position)
        self._next = self._end
        if known is not None:
            self._next = Boundary(known.end_position, known.end_offset)


def durable_segments(chain: SegmentChain, end: Boundary) -> list[DurableSegment]:
    """Every segment that holds something durable; `end` is where that ends in the active one."""
    ends = [
        (segment, Boundary(segment.size_bytes, segment.end_offset)) for segment in chain.segments
    ]
    ends[-1] = chain.active, end
    return [
        DurableSegment(chain, segment, reach)
        for segment, reach in ends
        if segment.base_offset < reach.offset <= end.offset
    ]
