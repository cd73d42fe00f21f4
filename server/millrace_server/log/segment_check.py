"""Every batch of a segment, checked against its CRC and against the checkpoint.

For a start with `verify`, which does not trust what lies before the checkpoint's end.
"""

from __future__ import annotations

from millrace_server.log.errors import CorruptLog
from millrace_server.log.integrity.scan import BatchScan, Ending
from millrace_server.log.segment import Segment


def check_segment(segment: Segment) -> int:
    """Reads a segment, all of which is durable; returns how much that was. Blocking.

    Raises `CorruptLog` and `OSError`.
    """
    scan = BatchScan(
        segment.file,
        0,
        segment.size_bytes,
        next_offset=segment.base_offset,
        is_dense=segment.is_dense,
    )
    end_offset = segment.base_offset
    for header in scan:
        end_offset = header.next_offset
    if scan.ending is not Ending.WHOLE:
        raise CorruptLog(segment.log_path(), scan.position, scan.message)
    if end_offset != segment.end_offset:
        # No CRC covers a base offset, and no batch follows that could contradict the last.
        raise CorruptLog(
            segment.log_path(),
            scan.position,
            f"the last batch ends at offset {end_offset} and the segment at {segment.end_offset}",
        )
    return scan.position
