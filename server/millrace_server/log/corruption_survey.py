"""How far a corrupt range reaches: from the batch that is not as it was to what can be found again.

Owns the search for the next whole batch. Refuses to remember anything. A batch whose length has
changed does not say where the next one begins; the index does, a few batches on.
"""

from __future__ import annotations

import struct

from millrace_protocol.records import HEADER_SIZE, batch_extent
from millrace_server.log.errors import CorruptLog
from millrace_server.log.integrity.corrupt_ranges import CorruptRange
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.segment import LOG_SUFFIX, Segment


def survey(segment: Segment, found: CorruptLog) -> CorruptRange:
    """The stretch that begins where `found` was met: up to the next whole batch, or at most up to
    the next one that the index names. Reads that batch; never raises.
    """
    start = Boundary(found.position, found.offset)
    end = _end(segment, start)
    return CorruptRange(
        segment.path(LOG_SUFFIX),
        start.position,
        end.position,
        start.offset,
        end.offset,
        found.message,
    )


def _end(segment: Segment, start: Boundary) -> Boundary:
    end = Boundary(segment.size_bytes, segment.end_offset)
    try:
        entry = segment.offsets.above_position(start.position)
        if entry is not None:
            end = Boundary(entry[1], segment.base_offset + entry[0])
        following = start.position + batch_extent(segment.pread(HEADER_SIZE, start.position))[1]
        if start.position + HEADER_SIZE <= following < end.position:
            behind = Boundary(following, batch_extent(segment.pread(HEADER_SIZE, following))[0])
            segment.check(segment.file, behind, following + 1, end_position=end.position)
            if start.offset < behind.offset < end.offset:
                return behind
    except (CorruptLog, OSError, struct.error):
        # More is wrong than one batch: the stretch ends where something is known to begin.
        return end
    return end
