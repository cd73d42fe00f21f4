"""A log as a start has found it, and the report of what finding it took.

Made by `recovery`, or for a new log; taken over by `partition_log`.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.log.cleanliness import NOT_CLEAN, Cleanliness
from millrace_server.log.epochs import FIRST_EPOCH, EpochTable
from millrace_server.log.offset_gaps import NO_GAP
from millrace_server.log.producers import Producers
from millrace_server.log.segment import Segment


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a log did.

    `is_clean`: it was closed in order and nothing was read. `cut` says where the log was cut and
    what was found there, None if it was not; `cut_bytes` went with it. `trimmed_bytes` were
    preallocated and never written, or are what a failed write left in a closed segment.
    """

    is_clean: bool
    has_checkpoint: bool
    scanned_bytes: int
    cut_bytes: int
    cut: str | None
    trimmed_bytes: int
    dropped_segments: int
    rebuilt_indexes: int
    set_aside: tuple[str, ...] = ()
    """Paths of segments that were not the log's, under their new names."""


@dataclass(slots=True)
class Recovered:
    """A log as found: its segments in order, the last of them active and ready for appends.

    The checkpoint names the first `settled_count` of them as closed. `bytes_behind_checkpoint`
    and `batches_behind_checkpoint` were read, and will be again if nothing moves the checkpoint.
    """

    segments: list[Segment]
    settled_count: int
    start_offset: int
    durable_offset: int
    producers: Producers
    report: RecoveryReport
    bytes_behind_checkpoint: int = 0
    batches_behind_checkpoint: int = 0
    cleanliness: Cleanliness = NOT_CLEAN
    epochs: EpochTable = FIRST_EPOCH
    saved_epochs: EpochTable | None = None
    """The epoch table as the disk has it, None if it has none."""
    gap_end: int = NO_GAP
    """No offset is missing from here on, but for what compaction has left out."""
