"""What a backup copies of a partition, and what it keeps of the backup before.

Pure. A log gives its records once and changes them by four things alone, and each has its rule:

    retention, DeleteRecords     files that end at the log's start, or before it, are dropped
    compaction                   what is kept may hold replaced records, which a restored broker
                                 compacts again; all is copied again where that is cheaper, and
                                 before a tombstone that was not copied can be gone
    truncation                   only after an unclean election: the last batch that was copied is
                                 read again, and all is copied again if the log has another one
    deletion of the topic        another topic id: nothing is kept
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from millrace_cli.backup.manifest import BackupFile, BackupPartition, LastBatch

COMPACTED_RATIO_MAX: Final = 2
"""A compacted partition in the backup takes at most so many times what it takes in the cluster,
and `COMPACTED_BYTES_MIN`."""
COMPACTED_BYTES_MIN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceLog:
    """A partition in the cluster, as it is to be in the backup.

    `size_bytes` is what the offsets `[start_offset, end_offset)` take, and `new_bytes` the part of
    that behind the end of the backup before.
    """

    start_offset: int
    end_offset: int
    size_bytes: int
    new_bytes: int
    is_compacted: bool
    delete_retention_ms: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Read the log from `from_offset` to its end, behind the `kept` files.

    The batch at `from_offset` is `expected`, which is not copied again; None: there is none.
    """

    kept: tuple[BackupFile, ...]
    from_offset: int
    expected: LastBatch | None = None

    @property
    def copied_from(self) -> int:
        """The first offset that may be copied."""
        return self.kept[-1].end_offset if self.kept else self.from_offset


def plan_copy(
    log: SourceLog, before: BackupPartition | None, *, before_ms: int, now_ms: int
) -> CopyPlan:
    """What to copy of a log; `before` is the backup of it that was begun at `before_ms`."""
    whole = copy_all(log)
    if before is None or not log.start_offset <= before.end_offset <= log.end_offset:
        return whole
    if log.is_compacted and _must_begin_anew(log, before, now_ms - before_ms):
        return whole
    kept = kept_files(before.files, log.start_offset)
    last = before.last_batch
    if last is None or not kept:
        return CopyPlan((), max(before.end_offset, log.start_offset))
    # A start inside the last batch is answered with the whole of it.
    return CopyPlan(kept, max(last.base_offset, log.start_offset), last)


def copy_all(log: SourceLog) -> CopyPlan:
    """All of a log, and nothing of the backup before."""
    return CopyPlan((), log.start_offset)


def is_continued(log: SourceLog, expected: LastBatch, found: LastBatch) -> bool:
    """Whether a log that has the batch `found` in the place of `expected` goes on from that.

    Compaction may have written the batch anew, or have removed it.
    """
    if log.is_compacted and found.base_offset > expected.base_offset:
        return True
    if log.is_compacted:
        found = replace(found, crc=expected.crc)
    return found == expected


def kept_files(files: tuple[BackupFile, ...], start_offset: int) -> tuple[BackupFile, ...]:
    """The files that hold a record at or behind the start of the log."""
    return tuple(file for file in files if file.end_offset > start_offset)


def _must_begin_anew(log: SourceLog, before: BackupPartition, age_ms: int) -> bool:
    if age_ms < 0 or age_ms >= log.delete_retention_ms:
        return True
    copy_bytes = before.size_bytes + log.new_bytes
    return copy_bytes > max(COMPACTED_BYTES_MIN, COMPACTED_RATIO_MAX * log.size_bytes)
