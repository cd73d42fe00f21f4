"""The leader epochs of batches, for a log whose epoch table is missing.

Reads headers alone, and few of them: a segment that begins with the same epoch as the next one
holds no other, because epochs never go down in a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest

from millrace_server.log.epochs import EpochStart, EpochTable
from millrace_server.log.errors import CorruptLog
from millrace_server.log.segment import Segment


def scan_epochs(segments: Sequence[Segment]) -> EpochTable:
    """The table that the headers of these segments give. Blocking; raises `OSError`.

    What follows a header that cannot be true in a segment is passed over. No CRC covers an epoch:
    one that is lower than the one before it is not believed.
    """
    table = EpochTable()
    firsts = [next(_starts(segment), None) for segment in segments]
    for segment, first, following in zip_longest(segments, firsts, firsts[1:]):
        if first is None:
            continue
        is_uniform = following is not None and following.epoch == first.epoch
        for epoch, offset in (first,) if is_uniform else _starts(segment):
            if epoch > table.latest:
                table = table.begin(epoch, offset)
    return table


def _starts(segment: Segment) -> Iterator[EpochStart]:
    with suppress(CorruptLog):
        for span in segment.spans(0, segment.size_bytes):
            yield EpochStart(span.leader_epoch, span.base_offset)
