"""What a log is after a crash: the scan, and the segments that result.

Owns what is read, what is trusted, and what is changed on the disk. Refuses to know appends and
reads; `verdicts` tells a torn tail, which is cut, from corruption, which is refused. Everything
before the checkpoint's end was durable when the checkpoint was written and is trusted by name and
size; only what lies behind it is read. Up to the recovery point it must be as it was written;
behind that it is cut where it is not, and what is left is written again.

         checkpoint                 recovery point
    ─────────┼──────────────────────────────┼─────────────────────────┬╌╌╌╌╌╌╌╌╌
    trusted  │ read; whole, or refused      │ read and written again  │ cut here
"""

from __future__ import annotations

import errno

from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint import CHECKPOINT_NAME, Checkpoint, read_checkpoint
from millrace_server.log.checkpoint_file import TEMPORARY_SUFFIX
from millrace_server.log.config import LogConfig
from millrace_server.log.epoch_scan import scan_epochs
from millrace_server.log.epochs import EPOCHS_NAME, FIRST_EPOCH, EpochTable, read_epochs
from millrace_server.log.errors import CorruptLog
from millrace_server.log.integrity.scan import BatchScan, Ending
from millrace_server.log.inventory import Inventory, SegmentName, is_replaced
from millrace_server.log.offset_gaps import NO_GAP, read_gap_end
from millrace_server.log.producers import Producers
from millrace_server.log.recovered import Recovered, RecoveryReport
from millrace_server.log.recovery_point import (
    RecoveryPoint,
    read_recovery_point,
    sync_recovery_point,
)
from millrace_server.log.repairs import Repairs
from millrace_server.log.segment import LOG_SUFFIX, SUFFIXES, Segment
from millrace_server.log.segment_check import check_segment
from millrace_server.log.verdicts import Standing, Verdict, verdict

_TEMPORARY_NAMES = (CHECKPOINT_NAME + TEMPORARY_SUFFIX, EPOCHS_NAME + TEMPORARY_SUFFIX)


def recover(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    verify: bool = False,
    is_read_only: bool = False,
) -> Recovered:
    """Finds what a directory holds, cuts a torn tail, and refuses a damaged log. Blocking.

    With `verify` every batch is read and checked, not only those behind the checkpoint. With
    `is_read_only` nothing on the disk is changed: what lies behind `durable_offset` is not known
    to be durable then. Raises `CorruptLog`, before anything of the records is changed, and
    `OSError`.
    """
    return _Recovery(
        disk, directory, config, now_ms=now_ms, verify=verify, is_read_only=is_read_only
    ).run()


class _Recovery:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        verify: bool,
        is_read_only: bool,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._verify = verify
        self._is_read_only = is_read_only
        self._scanned_bytes = 0
        self._cut_bytes = 0
        self._cut: str | None = None
        self._trimmed_bytes = 0
        self._dropped_segments = 0
        self._set_aside: list[str] = []
        self._is_after_clean_stop = False
        self._rebuilt_indexes = 0
        self._made: list[Segment] = []
        self._repairs = Repairs(disk)
        self._epochs: EpochTable | None = None
        self._gap_end = NO_GAP
        self._recovery_point: RecoveryPoint | None = None
        """Where it is still ahead of the scan."""
        self._durable_offset = 0
        self._batches_behind = 0
        self._bytes_behind = 0

    def run(self) -> Recovered:
        try:
            return self._recover()
        except BaseException as error:
            # A log that is refused must not keep files open: the next attempt opens it again.
            for segment in self._made:
                segment.close_files()
            if isinstance(error, CorruptLog) and not self._is_read_only:
                sync_recovery_point(self._disk, self._directory)
            raise

    def _recover(self) -> Recovered:
        names = set(self._disk.list_directory(self._directory))
        found = Inventory(names)
        for name in (*_TEMPORARY_NAMES, *found.scraps):
            if name in names:
                self._repairs.remove(f"{self._directory}/{name}")
        checkpoint = read_checkpoint(self._disk, self._directory)
        self._recovery_point = read_recovery_point(self._disk, self._directory)
        saved_epochs = read_epochs(self._disk, self._directory)
        self._gap_end = read_gap_end(self._disk, self._directory)
        self._epochs = saved_epochs
        if checkpoint is None:
            recovered = self._recover_all(found, names)
        else:
            recovered = self._recover_behind(checkpoint, found, names)
        recovered.epochs = self._epochs_of(recovered)
        if recovered.epochs == saved_epochs:
            recovered.epochs = saved_epochs
        recovered.saved_epochs = saved_epochs
        recovered.gap_end = self._gap_end
        if not self._is_read_only:
            self._repairs.carry_out()
        return recovered

    def _epochs_of(self, recovered: Recovered) -> EpochTable:
        """The epoch table of what was found; epochs that begin behind its end go.

        One that begins at the end stays, as in a log that runs: its leader need not write the table
        again, which a full disk would refuse.
        """
        table = self._epochs or EpochTable()
        end_offset = recovered.segments[-1].end_offset
        table = table.truncate_to(end_offset + 1).trim_to(recovered.start_offset)
        return table if table.entries else FIRST_EPOCH

    def _recover_behind(
        self, checkpoint: Checkpoint, found: Inventory, names: set[str]
    ) -> Recovered:
        named = [SegmentName(closed.base_offset, closed.generation) for closed in checkpoint.closed]
        named.append(SegmentName(checkpoint.active_base_offset))
        others = found.beside(named)
        if isinstance(others, str):
            raise CorruptLog(
                self._directory,
                0,
                f"the checkpoint names {len(named)} segments from offset {named[0].base_offset} "
                f"on, and {others}",
            )
        removed, later = others
        if removed:
            self._repairs.rewrite_checkpoint(self._directory, checkpoint)
        for name in removed:
            self._repairs.remove_segment(self._segment(name))
        segments = []
        for closed, name, following in zip(checkpoint.closed, named, named[1:], strict=False):
            segment = self._segment(name)
            segment.end_offset = following.base_offset
            segment.max_timestamp = closed.max_timestamp
            self._trust(segment, closed.size_bytes, names)
            segments.append(segment)
        segments.append(self._active(checkpoint))
        if self._verify:
            for segment in segments:
                self._scanned_bytes += check_segment(segment)
        if self._epochs is None:
            self._epochs = scan_epochs(segments)
        producers = checkpoint.restore_producers()
        self._begin(checkpoint.end_offset)
        self._is_after_clean_stop = checkpoint.is_clean and self._recovery_point is None
        self._scan_on(segments, later, producers, has_checkpoint=True)
        return Recovered(
            segments,
            len(checkpoint.closed),
            checkpoint.start_offset,
            self._durable_offset,
            producers,
            self._report(checkpoint),
            self._bytes_behind,
            self._batches_behind,
            checkpoint.cleanliness,
        )

    def _recover_all(self, found: Inventory, names: set[str]) -> Recovered:
        """Reads the whole log: of what was durable the recovery point alone is known, if it is
        there, so behind it only an open end is cut."""
        replaced, segment_names = found.newest()
        for name in replaced:
            self._repairs.remove_segment(self._segment(name))
        if not segment_names:
            if names:
                raise CorruptLog(self._directory, 0, "no segment and no valid checkpoint is there")
            segment_names = [SegmentName(0)]
            self._create(segment_names[0])
        first_offset = segment_names[0].base_offset
        segments = [self._segment(segment_names[0])]
        segments[0].start_indexes()
        producers = Producers()
        self._begin(first_offset)
        self._scan_on(segments, segment_names[1:], producers, has_checkpoint=False)
        if segments[-1].generation:
            # Only closed segments are cleaned: the one that was written to is gone.
            fresh = SegmentName(segments[-1].end_offset)
            self._create(fresh)
            segments.append(self._segment(fresh))
            segments[-1].start_indexes()
            segments[-1].open_for_writing()
        return Recovered(
            segments, 0, first_offset, self._durable_offset, producers, self._report(None)
        )

    def _create(self, name: SegmentName) -> None:
        if self._is_read_only:
            raise OSError(errno.EROFS, "the log has no segment to read", self._directory)
        path = self._segment(name).path(LOG_SUFFIX)
        self._disk.open(path, create=True, write=True).release()

    def _begin(self, offset: int) -> None:
        """Notes where the scan begins; a recovery point that is not behind that is done with."""
        self._durable_offset = offset
        if self._recovery_point is not None and self._recovery_point.end_offset <= offset:
            self._recovery_point = None

    def _segment(self, name: SegmentName) -> Segment:
        segment = Segment(
            self._disk,
            self._directory,
            name.base_offset,
            generation=name.generation,
            index_interval_bytes=self._config.index_interval_bytes,
        )
        if segment.base_offset < self._gap_end:
            segment.is_dense = False
        self._made.append(segment)
        return segment

    def _trust(self, segment: Segment, size_bytes: int, names: set[str]) -> None:
        """Takes over a closed segment by name and size."""
        self._require(segment, size_bytes)
        segment.size_bytes = segment.allocated_bytes = size_bytes
        if any(segment.path(suffix).rpartition("/")[2] not in names for suffix in SUFFIXES):
            segment.rebuild_indexes()
            self._repairs.save_indexes(segment)
            self._rebuilt_indexes += 1
        segment.close_files()

    def _active(self, checkpoint: Checkpoint) -> Segment:
        """Takes over the active segment up to the checkpoint's end."""
        segment = self._segment(SegmentName(checkpoint.active_base_offset))
        segment.end_offset = checkpoint.end_offset
        segment.max_timestamp = checkpoint.max_timestamp
        self._require(segment, checkpoint.position)
        segment.size_bytes = checkpoint.position
        if not segment.restore_indexes(checkpoint.index_entries):
            segment.rebuild_indexes()
            self._rebuilt_indexes += 1
        for span in segment.spans(0, segment.size_bytes):
            segment.first_timestamp = span.max_timestamp
            break
        return segment

    def _require(self, segment: Segment, size_bytes: int) -> None:
        found = segment.file.size()
        if found < size_bytes:
            raise CorruptLog(
                segment.path(LOG_SUFFIX),
                found,
                f"{size_bytes} bytes of the file were durable and {found} are there",
            )

    def _scan_on(
        self,
        segments: list[Segment],
        later: list[SegmentName],
        producers: Producers,
        *,
        has_checkpoint: bool,
    ) -> None:
        """Reads from the end of the last of `segments` on, and on through the `later` ones."""
        while True:
            segment = segments[-1]
            if not self._is_read_only:
                segment.open_for_writing()
            found = self._scan_segment(segment, producers, has_checkpoint=has_checkpoint)
            later = self._without_replaced(segment, later)
            ending, message = self._in_the_log(found, segment, later)
            standing = self._standing(has_checkpoint=has_checkpoint, is_last=not later)
            decision = verdict(ending, standing)
            if decision is Verdict.REFUSE:
                if self._recovery_point is not None:
                    message += (
                        f", and all before offset {self._recovery_point.end_offset} was durable"
                    )
                raise CorruptLog(segment.path(LOG_SUFFIX), segment.size_bytes, message)
            if decision is Verdict.CUT:
                self._cut = f"{segment.path(LOG_SUFFIX)} at byte {segment.size_bytes}: {message}"
                self._cut_bytes += self._repairs.truncate(segment, is_cut=True)
                self._drop(later)
                later = []
            elif decision is Verdict.TRIM:
                self._trimmed_bytes += self._repairs.truncate(segment, is_cut=False)
            segment.allocated_bytes = segment.size_bytes
            if not later:
                return
            following = self._segment(later.pop(0))
            following.start_indexes()
            segments.append(following)

    def _scan_segment(
        self, segment: Segment, producers: Producers, *, has_checkpoint: bool
    ) -> tuple[Ending, str]:
        start = segment.size_bytes
        scan = BatchScan(
            segment.file,
            start,
            segment.file.size(),
            next_offset=segment.end_offset,
            is_dense=segment.is_dense,
        )
        is_behind = self._is_behind_recovery_point(segment)
        rewritten_from = start if is_behind else None
        for header in scan:
            segment.extend(
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                size_bytes=header.size_bytes,
                max_timestamp=header.max_timestamp,
            )
            self._batches_behind += 1
            epochs = self._epochs or EpochTable()
            if header.partition_leader_epoch > epochs.latest:
                self._epochs = epochs.begin(header.partition_leader_epoch, header.base_offset)
            if header.has_producer:
                producers.note(
                    header,
                    base_offset=header.base_offset,
                    log_append_time_ms=header.max_timestamp if header.is_log_append_time else -1,
                    now_ms=self._now_ms,
                )
            if not is_behind and self._is_behind_recovery_point(segment):
                is_behind, rewritten_from = True, segment.size_bytes
        self._scanned_bytes += scan.position - start
        self._bytes_behind += scan.position - start
        if rewritten_from is not None:
            self._repairs.rewrite(segment, rewritten_from)
        if scan.ending is Ending.UNWRITTEN and not has_checkpoint and not scan.is_rest_zero():
            return Ending.DAMAGED, "zeros, and bytes that are not zero behind them"
        return scan.ending, scan.message

    def _without_replaced(self, segment: Segment, later: list[SegmentName]) -> list[SegmentName]:
        """Of the `later` ones, those that do not begin inside a segment which has replaced them."""
        point = self._recovery_point
        if point is not None and segment.generation and point.end_offset <= segment.end_offset:
            # It named the end of a segment that is cleaned by now. All of this one is durable.
            self._durable_offset, self._recovery_point = segment.end_offset, None
        by = SegmentName(segment.base_offset, segment.generation)
        while later and later[0].base_offset < segment.end_offset and is_replaced(later[0], by=by):
            self._repairs.remove_segment(self._segment(later[0]))
            later = later[1:]
        return later

    def _is_behind_recovery_point(self, segment: Segment) -> bool:
        """Whether the scan, at the end of `segment` as read so far, has come to the
        recovery point.

        A scan that misses its place never does: the offsets say one thing and the bytes another.
        """
        point = self._recovery_point
        if point is None:
            return True
        if point != (segment.end_offset, segment.base_offset, segment.size_bytes):
            return False
        self._durable_offset = point.end_offset
        self._recovery_point = None
        return True

    def _in_the_log(
        self, found: tuple[Ending, str], segment: Segment, later: list[SegmentName]
    ) -> tuple[Ending, str]:
        """How the scan of a segment ended, seen together with what follows it."""
        ending = found[0]
        if later and later[0].base_offset == segment.end_offset:
            return found if ending is Ending.WHOLE else (Ending.CONTINUED, found[1])
        if ending not in (Ending.WHOLE, Ending.UNWRITTEN):
            return found
        if later:
            return Ending.MISSING, (
                f"offset {segment.end_offset} is next, and {later[0].base_offset} follows"
            )
        if self._recovery_point is not None:
            return Ending.MISSING, f"the log ends at offset {segment.end_offset}"
        return found

    def _standing(self, *, has_checkpoint: bool, is_last: bool) -> Standing:
        if self._recovery_point is not None:
            return Standing.DURABLE
        if has_checkpoint:
            return Standing.UNSYNCED
        return Standing.UNKNOWN_LAST if is_last else Standing.UNKNOWN_EARLIER

    def _drop(self, names: list[SegmentName]) -> None:
        for name in names:
            segment = self._segment(name)
            if self._is_after_clean_stop:
                # No sync has ended since the log was closed, so that a segment behind its end was
                # hardly made by the broker: a person may have put it there.
                self._set_aside.append(self._repairs.set_aside(segment))
                continue
            self._cut_bytes += segment.file.size()
            segment.close_files()
            self._repairs.remove_segment(segment)
        self._dropped_segments += len(names)

    def _report(self, checkpoint: Checkpoint | None) -> RecoveryReport:
        untouched = not (self._scanned_bytes or self._cut_bytes or self._trimmed_bytes)
        return RecoveryReport(
            is_clean=checkpoint is not None and checkpoint.is_clean and untouched,
            has_checkpoint=checkpoint is not None,
            scanned_bytes=self._scanned_bytes,
            cut_bytes=self._cut_bytes,
            cut=self._cut,
            trimmed_bytes=self._trimmed_bytes,
            dropped_segments=self._dropped_segments,
            rebuilt_indexes=self._rebuilt_indexes,
            set_aside=tuple(self._set_aside),
        )
