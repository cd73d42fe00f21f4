"""The log of one partition: offsets from 0 that are given once and never change, in segments.

Owns append, read, roll, what is durable, retention, and which segments are in force. Refuses to
know topics, replicas and threads: blocking work is handed out as a `FlushTicket` or a `Cleaning`,
files come from the `Disk` seam, and time is a parameter. One log belongs to one event loop.

    start_offset <= durable_offset <= end_offset

An append is one write and a few lines of memory: index files, the checkpoint and the checkpoint's
producers are written by the flush, so a failure there can lose neither offsets nor data
(KAFKA-7866, KAFKA-10778).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from millrace_protocol.records import (
    BatchHeader,
    BatchTooLarge,
    assign,
    stamp_log_append_time,
)
from millrace_server.environment.seams import Disk, ReadBuffer
from millrace_server.log.chain import SegmentChain
from millrace_server.log.checkpoint import Checkpoint, ClosedSegment, write_checkpoint
from millrace_server.log.compaction.cleaning import Cleaning, Swap
from millrace_server.log.compaction.plan import plan
from millrace_server.log.config import SEGMENT_BYTES_MAX, LogConfig
from millrace_server.log.durable_mark import MarkFile
from millrace_server.log.epochs import FIRST_EPOCH, NO_EPOCH, EpochEnd, write_epochs
from millrace_server.log.errors import (
    CorruptLog,
    LogClosed,
    LogFailed,
    OffsetOutOfRange,
    ReadOnlyLog,
)
from millrace_server.log.flush import DISK_FULL_ERRNOS, FlushTicket, IndexTail
from millrace_server.log.follower_batches import check_for_follower
from millrace_server.log.integrity.corrupt_ranges import CorruptRange
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.offset_gaps import write_gap_end
from millrace_server.log.preallocation import wanted_bytes
from millrace_server.log.producers import Producers
from millrace_server.log.reading import LogRead, read_batches
from millrace_server.log.recovery import Recovered, RecoveryReport, recover
from millrace_server.log.retention import expired_segments, is_too_old, segments_before
from millrace_server.log.scrub import DurableSegment, durable_segments
from millrace_server.log.segment import RELATIVE_OFFSET_MAX, Segment
from millrace_server.log.splitting import Piece, split
from millrace_server.log.timestamps import Candidate, first_candidate, largest_timestamp
from millrace_server.log.truncation import (
    copy_front,
    end_before,
    note_end,
    producers_before,
    replace_tail,
)

CHECKPOINT_BYTES: Final = 32 * 1024 * 1024
CHECKPOINT_BATCHES: Final = 8192
"""How much may lie behind a checkpoint: about 30 ms of reading after a crash, per partition."""

WriteBuffer = bytearray | memoryview


class Appended(NamedTuple):
    """Where a batch is: `base_offset` to `last_offset`, inclusive.

    `log_append_time_ms` is -1 unless the broker's clock set the timestamp. A `duplicate` was
    there before; it is acknowledged like any other, once `last_offset` is durable.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class PartitionLog:
    """Created or opened once, appended to and read, then closed; dead after a failed sync."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, recovered: Recovered) -> None:
        """Takes over what `recover` found; use `create` or `open`."""
        self.config = config
        self.directory = directory
        self.recovery: RecoveryReport = recovered.report
        self._disk = disk
        self._mark_file = MarkFile(disk, directory)
        self._chain = SegmentChain(recovered.segments, settled_count=recovered.settled_count)
        self._producers = recovered.producers
        self._cleanliness = recovered.cleanliness
        self._epochs = recovered.epochs
        self._saved_epochs = recovered.saved_epochs
        self._gap_end = recovered.gap_end
        self._is_gap_end_dirty = False
        self._start_offset = recovered.start_offset
        self._end_offset = self._chain.active.end_offset
        self._durable_offset = recovered.durable_offset
        # Right when all is durable; what was recovered is, once `open` has flushed it.
        self._durable_position = self._chain.active.size_bytes
        self._failure: BaseException | None = None
        self._is_closed = False
        self._has_clean_checkpoint = recovered.report.is_clean
        self._ticket: FlushTicket | None = None
        self._removed: list[Segment] = []
        self._is_directory_dirty = False
        self._bytes_behind_checkpoint = recovered.bytes_behind_checkpoint
        self._batches_behind_checkpoint = recovered.batches_behind_checkpoint
        self._wants_checkpoint = False

    @classmethod
    def create(cls, disk: Disk, directory: str, config: LogConfig) -> PartitionLog:
        """Makes the directory of a new, empty log, durably. Blocking; raises `OSError`."""
        disk.make_directory(directory)
        segment = Segment.create(
            disk, directory, 0, index_interval_bytes=config.index_interval_bytes
        )
        try:
            write_epochs(disk, directory, FIRST_EPOCH)
            write_checkpoint(disk, directory, Checkpoint(0, 0, 0, 0, -1, 0, (), b"", is_clean=True))
            disk.sync_directory(directory.rpartition("/")[0])
        except OSError:
            segment.close_files()
            raise
        report = RecoveryReport(True, True, 0, 0, None, 0, 0, 0)
        made = Recovered([segment], 0, 0, 0, Producers(), report, saved_epochs=FIRST_EPOCH)
        return cls(disk, directory, config, made)

    @classmethod
    def open(
        cls, disk: Disk, directory: str, config: LogConfig, *, now_ms: int, verify: bool = False
    ) -> PartitionLog:
        """Opens a log after a shutdown or a crash; `recovery` says what that took. Blocking.

        What a crash left behind the checkpoint is checked, and durable when this returns. With
        `verify` everything is checked. Raises `CorruptLog` and `OSError`.
        """
        recovered = recover(disk, directory, config, now_ms=now_ms, verify=verify)
        log = cls(disk, directory, config, recovered)
        report = recovered.report
        if (
            not report.has_checkpoint
            or log._durable_offset < log._end_offset
            or report.cut is not None
            or log._chain.unsettled
            or log._epochs is not log._saved_epochs
        ):
            log._is_directory_dirty = log._wants_checkpoint = True
            try:
                log.flush(preallocate=False)
            except OSError:
                log.discard()
                raise
        return log

    @classmethod
    def open_read_only(
        cls, disk: Disk, directory: str, config: LogConfig, *, now_ms: int, cause: OSError
    ) -> PartitionLog:
        """Opens a log that `open` could not repair because of `cause`. Blocking.

        Nothing is changed on the disk. What is known to be durable can be read; appends are
        refused with `ReadOnlyLog`. Raises `CorruptLog` and `OSError`.
        """
        recovered = recover(disk, directory, config, now_ms=now_ms, is_read_only=True)
        log = cls(disk, directory, config, recovered)
        log._failure = ReadOnlyLog(directory, cause)
        try:
            log._durable_position = log._chain.find(log._durable_offset).position
        except (CorruptLog, OSError):
            log.discard()
            raise
        return log

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self._end_offset

    @property
    def durable_offset(self) -> int:
        """Everything before it survives a power cut."""
        return self._durable_offset

    @property
    def size_bytes(self) -> int:
        """The size of all batches, without indexes and preallocated space."""
        return self._chain.size_bytes

    @property
    def segment_count(self) -> int:
        """Segments that can be read, the active one included."""
        return len(self._chain.segments)

    @property
    def is_failed(self) -> bool:
        """Whether a disk error has stopped the log."""
        return self._failure is not None

    @property
    def read_only_cause(self) -> OSError | None:
        """Why the log is read-only, None if it is not; a read-only log `is_failed`, too."""
        return self._failure.cause if isinstance(self._failure, ReadOnlyLog) else None

    @property
    def failure(self) -> BaseException | None:
        """The error that has stopped the log."""
        return self._failure

    @property
    def is_flush_due(self) -> bool:
        """Whether a flush is worth it although no ack waits for one: ask after an append."""
        return (
            self._wants_checkpoint
            or self._epochs is not self._saved_epochs
            or self._bytes_behind_checkpoint >= CHECKPOINT_BYTES
            or self._batches_behind_checkpoint >= CHECKPOINT_BATCHES
            or self._wanted_preallocation() is not None
        )

    # Appending

    def append(self, batch: WriteBuffer, header: BatchHeader, *, now_ms: int) -> Appended:
        """Gives one checked batch the next offsets and writes it; it is not durable yet.

        `batch` is exactly the batch that `header` was read from; its offset, the log's leader
        epoch and, if the topic says so, timestamp are written into it. Raises `BatchTooLarge`, a
        `LogRefusal` or `LogFailed`, and `OSError` if the write fails: then nothing is appended,
        and unless the disk is merely full the log has failed.
        """
        if self._failure is not None or self._is_closed:
            raise self._stopped()
        config = self.config
        size_bytes = header.size_bytes
        if size_bytes > config.max_message_bytes:
            raise BatchTooLarge(size_bytes, config.max_message_bytes)
        if header.producer_id >= 0:
            repeated = self._producers.check(header)
            if repeated is not None:
                return Appended(
                    repeated.base_offset, repeated.last_offset, repeated.log_append_time_ms, True
                )
        base_offset = self._end_offset
        last_offset = base_offset + header.last_offset_delta
        timestamp, log_append_time_ms = header.max_timestamp, -1
        if config.timestamp_type == "LogAppendTime":
            timestamp = log_append_time_ms = now_ms
            stamp_log_append_time(batch, timestamp_ms=now_ms)
        else:
            config.check_timestamps(header.base_timestamp, timestamp, now_ms=now_ms)
        assign(batch, base_offset=base_offset, leader_epoch=self._epochs.latest)
        self._write(
            batch,
            header,
            base_offset=base_offset,
            timestamp=timestamp,
            log_append_time_ms=log_append_time_ms,
            now_ms=now_ms,
        )
        return Appended(base_offset, last_offset, log_append_time_ms, False)

    def append_as_follower(self, batches: ReadBuffer, *, now_ms: int) -> int:
        """Appends batches as the leader wrote them; returns the log's end.

        Offsets and epochs are kept, and so are the gaps that compaction has left. All batches are
        checked before one is written: whole, with right CRCs, none overlapping the one before,
        epochs never falling. Raises `CorruptBatch`, `UnexpectedBatch`, `LogFailed` and `OSError`.
        """
        if self._failure is not None or self._is_closed:
            raise self._stopped()
        checked = check_for_follower(
            batches, next_offset=self._end_offset, leader_epoch=self.leader_epoch
        )
        for batch, header in checked:
            if header.base_offset > self._end_offset:
                self._note_gap(header.base_offset)
            is_stamped = header.is_log_append_time
            self._write(
                batch,
                header,
                base_offset=header.base_offset,
                timestamp=header.max_timestamp,
                log_append_time_ms=header.max_timestamp if is_stamped else -1,
                now_ms=now_ms,
            )
            self._epochs = self._epochs.begin(header.partition_leader_epoch, header.base_offset)
        return self._end_offset

    def _note_gap(self, gap_end: int) -> None:
        """Writes down that offsets before `gap_end` are missing, before the batch behind them."""
        try:
            write_gap_end(self._disk, self.directory, gap_end)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                self.fail(error)
            raise
        self._gap_end = gap_end
        self._is_gap_end_dirty = True
        self._chain.active.is_dense = False

    def _write(
        self,
        batch: ReadBuffer,
        header: BatchHeader,
        *,
        base_offset: int,
        timestamp: int,
        log_append_time_ms: int,
        now_ms: int,
    ) -> None:
        """Writes a batch at the end. Raises `OSError`; then nothing is appended."""
        size_bytes, last_offset = header.size_bytes, base_offset + header.last_offset_delta
        try:
            active = self._chain.active
            if active.size_bytes and self._must_roll(size_bytes, last_offset, timestamp, now_ms):
                active = self._roll()
            active.write(batch)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                self.fail(error)
            raise
        active.extend(
            base_offset=base_offset,
            last_offset=last_offset,
            size_bytes=size_bytes,
            max_timestamp=timestamp,
        )
        if active.first_timestamp < 0:
            active.first_timestamp = now_ms
        self._end_offset = last_offset + 1
        self._has_clean_checkpoint = False
        self._bytes_behind_checkpoint += size_bytes
        self._batches_behind_checkpoint += 1
        if header.producer_id >= 0:
            self._producers.note(
                header,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                now_ms=now_ms,
            )

    def _must_roll(self, size_bytes: int, last_offset: int, timestamp: int, now_ms: int) -> bool:
        active = self._chain.active
        if active.size_bytes + size_bytes > self.config.segment_bytes:
            return True
        if active.size_bytes > SEGMENT_BYTES_MAX - size_bytes:
            return True
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        # Kafka's rule: the records' own clock as long as they have one, so that a topic filled
        # from an archive rolls by the time of its records.
        reached = timestamp if timestamp >= 0 else now_ms
        return reached - active.first_timestamp > self.config.roll_ms

    def _roll(self) -> Segment:
        interval_bytes = self.config.index_interval_bytes
        fresh = self._chain.roll(self._disk, self.directory, index_interval_bytes=interval_bytes)
        fresh.is_dense = fresh.base_offset >= self._gap_end
        self._is_directory_dirty = self._wants_checkpoint = True
        return fresh

    # Leader epochs

    @property
    def leader_epoch(self) -> int:
        """The epoch that the log writes into batches: the latest of its table."""
        return self._epochs.latest

    @property
    def durable_epoch(self) -> int:
        """The latest epoch of the table that is on the disk, -1 if none is."""
        return NO_EPOCH if self._saved_epochs is None else self._saved_epochs.latest

    def begin_epoch(self, epoch: int) -> None:
        """Begins the epoch of a new leader at the end of the log.

        The leader may serve once a flush has moved `durable_epoch` there (KAFKA-7415). Raises
        `ValueError` if the epoch is older than the log's.
        """
        self._epochs = self._epochs.begin(epoch, self._end_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """The largest epoch that is not above `epoch`, and where its records end (KIP-279).

        None if the log has no record of so old an epoch any more.
        """
        return self._epochs.end_offset_for(epoch, log_end=self._end_offset)

    def truncate_to(self, offset: int, *, high_watermark: int, now_ms: int) -> int:
        """Takes off the batches from the one that holds `offset` on; returns the log's end.

        Blocking; no flush may be in flight. `offset` is not below the high watermark, so no
        consumer has read what goes. A crash leaves the log as it was, as it is afterwards, or with
        a part of the tail. Raises `OffsetOutOfRange`, `CorruptLog`, `LogFailed` and `OSError`: a
        full disk leaves the log as it was, after any other error it has failed.
        """
        if not max(self._start_offset, high_watermark) <= offset:
            raise OffsetOutOfRange(offset, high_watermark, self._end_offset)
        if offset < self._end_offset:
            self.flush(checkpoint=True)
            try:
                cut, front, later, producers = self._prepare_truncation(offset, now_ms)
            except OSError as error:
                if error.errno not in DISK_FULL_ERRNOS:
                    self.fail(error)
                raise
            try:
                replace_tail(self._disk, self.directory, front, later)
                front.open_for_writing()
            except OSError as error:
                self.fail(error)
                raise
            self._take_truncation(cut, front, producers)
            self.flush()
        return self._end_offset

    def _prepare_truncation(
        self, offset: int, now_ms: int
    ) -> tuple[Boundary, Segment, list[Segment], Producers]:
        """Everything is durable. Changes nothing of the log that a crash or an error would show."""
        chain = self._chain
        if chain.unsettled:
            raise OSError(errno.ENOSPC, "no room for the checkpoint", self.directory)
        segment = chain.holding(offset)
        if segment.generation:
            # Compaction cleans below the high watermark alone.
            raise OffsetOutOfRange(offset, segment.end_offset, self._end_offset)
        cut = end_before(segment, offset)
        count = chain.segments.index(segment)
        producers = producers_before(
            self._producers, chain.segments[: count + 1], cut, now_ms=now_ms
        )
        front = copy_front(self._disk, self.directory, segment, cut)
        before = self._checkpoint(is_clean=False)
        checkpoint = replace(
            before,
            recovery_offset=cut.offset,
            active_base_offset=front.base_offset,
            position=cut.position,
            max_timestamp=front.max_timestamp,
            index_entries=len(front.offsets),
            closed=before.closed[:count],
            producers=producers.encode(),
        )
        note_end(self._disk, self.directory, front, checkpoint, self._mark_file)
        return cut, front, chain.segments[count + 1 :], producers

    def _take_truncation(self, cut: Boundary, front: Segment, producers: Producers) -> None:
        self._chain.truncate(front)
        self._producers = producers
        self._end_offset = self._durable_offset = cut.offset
        self._durable_position = cut.position
        epochs = self._epochs.truncate_to(cut.offset)
        self._epochs = epochs if epochs.entries else FIRST_EPOCH
        self._has_clean_checkpoint = False

    # Reading

    def read(self, offset: int, *, max_bytes: int, end_offset: int) -> LogRead:
        """Finds whole batches from the one that holds `offset` on, without touching their bytes.

        `end_offset` is exclusive and a batch boundary: the high watermark. At most `max_bytes`,
        except that one batch is always given whole; never beyond one segment, and never beyond
        what is known to have rotted. Nothing is given for `end_offset <= offset`. Raises
        `OffsetOutOfRange`, `CorruptRecords`, `CorruptLog` and `OSError`.
        """
        if not self._start_offset <= offset <= self._end_offset:
            raise OffsetOutOfRange(offset, self._start_offset, self._end_offset)
        if self._is_closed:
            raise self._stopped()
        if offset >= end_offset:
            return LogRead(None, offset)
        return read_batches(
            self._chain,
            offset,
            max_bytes=max_bytes,
            end_offset=end_offset,
            known_end=self._durable_end(),
        )

    def split(
        self, start_offset: int, *, end_offset: int, piece_bytes: int, pieces_max: int
    ) -> list[Piece]:
        """Cuts a range into pieces of about `piece_bytes`, by the indexes and without a read.

        One that is not empty gets one piece at least, but not always all: see `splitting.split`.
        Raises `OffsetOutOfRange`, `CorruptLog` and `OSError`.
        """
        for offset in (start_offset, end_offset):
            if not self._start_offset <= offset <= self._end_offset:
                raise OffsetOutOfRange(offset, self._start_offset, self._end_offset)
        if self._is_closed:
            raise self._stopped()
        if start_offset >= end_offset:
            return []
        return split(
            self._chain.between(start_offset, end_offset),
            start_offset=start_offset,
            end_offset=end_offset,
            piece_bytes=piece_bytes,
            pieces_max=pieces_max,
        )

    def watch_corruption(self, tell: Callable[[CorruptRange], None]) -> None:
        """Has `tell` called once for each stretch that is found to have rotted."""
        self._chain.on_corruption = tell

    def durable_segments(self) -> list[DurableSegment]:
        """The durable segments, oldest first, for the scrub."""
        return durable_segments(self._chain, self._durable_end())

    def _durable_end(self) -> Boundary:
        return Boundary(self._durable_position, self._durable_offset)

    def candidate_for_timestamp(
        self, timestamp_ms: int, *, from_offset: int, end_offset: int
    ) -> Candidate | None:
        """Finds the first batch in `[from_offset, end_offset)` that may have a record not older.

        "First" by offset: where timestamps are out of order, later records may be older. Raises
        `CorruptLog` and `OSError`.
        """
        return first_candidate(
            self._chain.segments,
            timestamp_ms,
            start_offset=max(from_offset, self._start_offset),
            end_offset=end_offset,
        )

    def largest_timestamp(self, *, end_offset: int) -> int:
        """The largest timestamp before `end_offset`, -1 if there is none."""
        return largest_timestamp(
            self._chain.segments, start_offset=self._start_offset, end_offset=end_offset
        )

    # Durability

    def begin_flush(
        self, *, checkpoint: bool = False, preallocate: bool = True, closing: bool = False
    ) -> FlushTicket | None:
        """Takes note of all that is to be made durable; None if there is nothing to do.

        The ticket goes through `sync`, `finish_flush`, `settle`, `finish_settle`; if a step fails,
        through `fail` and `finish_settle`. There is one at a time. Raises `LogFailed`.
        """
        if self._failure is not None or self._is_closed:
            raise self._stopped()
        if self._ticket is not None:
            raise RuntimeError(f"{self.directory}: a flush is in flight")
        is_dirty = self._durable_offset < self._end_offset
        is_checkpoint_due = (
            checkpoint
            or self._wants_checkpoint
            or self._bytes_behind_checkpoint >= CHECKPOINT_BYTES
            or self._batches_behind_checkpoint >= CHECKPOINT_BATCHES
        )
        preallocation = self._wanted_preallocation() if preallocate else None
        are_epochs_dirty = self._epochs is not self._saved_epochs
        if not (is_dirty or is_checkpoint_due or preallocation or are_epochs_dirty):
            return None
        chain, active = self._chain, self._chain.active
        ticket = FlushTicket(
            self._disk,
            self.directory,
            self._end_offset,
            active,
            active.size_bytes,
            self._mark_file if is_dirty else None,
            self._epochs if are_epochs_dirty else None,
        )
        for segment in (*chain.unsettled, active):
            if segment.end_offset > self._durable_offset:
                ticket.hold_dirty(segment.file)
        ticket.sync_gap_end = self._is_gap_end_dirty
        self._is_gap_end_dirty = False
        ticket.sync_directory = self._is_directory_dirty
        self._is_directory_dirty = False
        if is_checkpoint_due:
            for segment in chain.unsettled:
                ticket.hold_rolled(segment)
            ticket.index_tail = IndexTail.of(active)
            ticket.checkpoint = self._checkpoint(is_clean=closing)
            ticket.removed = self._removed
            ticket.is_closing = closing
            self._has_clean_checkpoint = False
            self._removed = []
            self._wants_checkpoint = False
            self._bytes_behind_checkpoint = self._batches_behind_checkpoint = 0
        if preallocation is not None:
            ticket.hold_preallocation(active, preallocation)
        self._ticket = ticket
        return ticket

    def finish_flush(self, ticket: FlushTicket) -> None:
        """Moves `durable_offset` to where the ticket's `sync` has made the log durable."""
        self._durable_offset = ticket.end_offset
        self._durable_position = ticket.end_position
        self._note_epochs(ticket)

    def finish_settle(self, ticket: FlushTicket) -> None:
        """Ends a ticket, whatever became of it, and releases its files."""
        self._note_epochs(ticket)
        if ticket.is_settled:
            for segment, _ in ticket.rolled:
                self._chain.settle(segment)
            if ticket.index_tail is not None:
                ticket.index_tail.note_saved()
        elif ticket.checkpoint is not None:
            self._wants_checkpoint = True
            self._removed = ticket.removed + self._removed
        ticket.note_preallocated()
        ticket.release()
        self._ticket = None

    def _note_epochs(self, ticket: FlushTicket) -> None:
        if ticket.are_epochs_saved:
            self._saved_epochs = ticket.epochs

    def flush(self, *, checkpoint: bool = False, preallocate: bool = True) -> None:
        """Does a whole flush here and now. Blocking; raises `OSError` and `LogFailed`."""
        ticket = self.begin_flush(checkpoint=checkpoint, preallocate=preallocate)
        if ticket is not None:
            self._run(ticket)

    def fail(self, error: BaseException) -> None:
        """Stops the log after a disk error: no append or flush again, what is there can be read."""
        if self._failure is None:
            self._failure = error

    def close(self) -> None:
        """Makes everything durable, marks the log as closed in order, lets all files go. Blocking.

        A log that has failed is only let go of. Raises `OSError`; the files are let go even then.
        """
        if self._is_closed:
            return
        try:
            if self._failure is None and not self._has_clean_checkpoint:
                ticket = self.begin_flush(checkpoint=True, preallocate=False, closing=True)
                if ticket is not None:
                    self._run(ticket)
        finally:
            self.discard()

    def discard(self) -> None:
        """Lets all files go and writes nothing: for a partition that is being deleted."""
        self._is_closed = True
        self._chain.let_go()
        self._mark_file.close()

    def close_idle_files(self) -> None:
        """Lets go of what only a log that is written to needs; call it now and then.

        Nothing happens to one that was flushed since the last call.
        """
        if self._ticket is None:
            self._mark_file.close_if_unused()

    def _run(self, ticket: FlushTicket) -> None:
        try:
            ticket.sync()
            self.finish_flush(ticket)
            ticket.settle()
        except OSError as error:
            self.fail(error)
            raise
        finally:
            self.finish_settle(ticket)

    def _checkpoint(self, *, is_clean: bool) -> Checkpoint:
        """What will be durable once everything up to now is."""
        active = self._chain.active
        return Checkpoint(
            start_offset=self._start_offset,
            recovery_offset=self._end_offset,
            active_base_offset=active.base_offset,
            position=active.size_bytes,
            max_timestamp=active.max_timestamp,
            index_entries=len(active.offsets),
            closed=tuple(
                ClosedSegment(
                    segment.base_offset,
                    segment.size_bytes,
                    segment.max_timestamp,
                    segment.generation,
                )
                for segment in self._chain.segments[:-1]
            ),
            producers=self._producers.encode(),
            is_clean=is_clean,
            cleanliness=self._cleanliness,
        )

    def _wanted_preallocation(self) -> int | None:
        active = self._chain.active
        if not self.config.preallocate:
            return None
        return wanted_bytes(
            active.size_bytes, active.allocated_bytes, limit_bytes=self.config.segment_bytes
        )

    def _stopped(self) -> LogFailed | LogClosed | ReadOnlyLog:
        if isinstance(self._failure, ReadOnlyLog) and not self._is_closed:
            return ReadOnlyLog(self.directory, self._failure.cause)
        if self._failure is not None:
            return LogFailed(self.directory, self._failure)
        return LogClosed(self.directory)

    # Retention

    def retention(self, now_ms: int, *, high_watermark: int) -> list[Segment]:
        """Takes the segments out of the log that its retention no longer keeps; returns them.

        `start_offset` moves at once. The next flush writes it down, and only then deletes the
        files; readers keep the files they hold. Never the active segment, and nothing at
        or above the high watermark. An active segment that is too old as a whole is rolled, so
        that a topic without producers is emptied too, by the next call after a flush. Of a log that
        is only compacted go the segments that lie before its start.
        """
        self._roll_if_too_old(now_ms)
        limit_offset = self._settled_offset(high_watermark)
        segments = self._chain.segments
        count = segments_before(segments, min(self._start_offset, limit_offset))
        if self.config.deletes:
            count = max(
                count,
                expired_segments(segments, self.config, now_ms=now_ms, limit_offset=limit_offset),
            )
        return self._drop_first(count)

    def advance_start(self, offset: int, *, high_watermark: int) -> None:
        """Begins the log at `offset`: no record before it can be read any more.

        The next flush writes that down, and only then deletes the segments that lie before it. A
        crash until then leaves the start as it was. Never goes back: a lower offset changes
        nothing. Raises `OffsetOutOfRange` above the high watermark, and `LogFailed`. Source:
        Kafka's `maybeIncrementLogStartOffset`.
        """
        if self._failure is not None or self._is_closed:
            raise self._stopped()
        if offset > high_watermark:
            raise OffsetOutOfRange(offset, self._start_offset, high_watermark)
        if offset <= self._start_offset:
            return
        self._start_offset = offset
        self._epochs = self._epochs.trim_to(offset)
        self._wants_checkpoint = True
        self._has_clean_checkpoint = False
        limit_offset = min(offset, self._settled_offset(high_watermark))
        self._drop_first(segments_before(self._chain.segments, limit_offset))

    def _drop_first(self, count: int) -> list[Segment]:
        """Takes the oldest segments out of the log; the next flush deletes them."""
        if not count:
            return []
        removed = self._chain.drop_first(count)
        self._start_offset = max(self._start_offset, self._chain.segments[0].base_offset)
        self._epochs = self._epochs.trim_to(self._start_offset)
        self._removed += removed
        self._wants_checkpoint = True
        self._has_clean_checkpoint = False
        return removed

    def _roll_if_too_old(self, now_ms: int) -> None:
        active = self._chain.active
        if self._failure is not None or not active.size_bytes:
            return
        config = self.config
        if (config.deletes and is_too_old(active, config, now_ms=now_ms)) or (
            config.compacts and 0 <= active.first_timestamp < now_ms - config.max_compaction_lag_ms
        ):
            try:
                self._roll()
            except OSError as error:
                # A full disk may have room again once the older segments are gone.
                if error.errno not in DISK_FULL_ERRNOS:
                    self.fail(error)
                    raise

    def _settled_offset(self, high_watermark: int) -> int:
        """What lies before it is durable and below the high watermark, in segments that rest."""
        limit_offset = min(high_watermark, self._durable_offset)
        if self._chain.unsettled:
            limit_offset = min(limit_offset, self._chain.unsettled[0].base_offset)
        return limit_offset

    # Compaction

    def begin_cleaning(self, now_ms: int, *, high_watermark: int, keys_max: int) -> Cleaning | None:
        """Returns a pass of compaction over what rests in the log, None if none is due.

        Each `Swap` that its steps return goes to `swap`, and after the last step the pass to
        `finish_cleaning`; or it is closed. One at a time.
        """
        config = self.config
        if not config.compacts or self._failure is not None or self._is_closed:
            return None
        due = plan(
            self._chain.segments[:-1],
            config,
            self._cleanliness,
            start_offset=self._start_offset,
            limit_offset=self._settled_offset(high_watermark),
            now_ms=now_ms,
        )
        if due is None:
            return None
        return Cleaning(
            self._disk,
            self.directory,
            due,
            config,
            now_ms=now_ms,
            keys_max=keys_max,
            producer_ends=self._producers.ends(),
        )

    def swap(self, swap: Swap) -> bool:
        """Puts cleaned segments in the place of those they were made of.

        Readers go on in what they hold. The next flush names the cleaned ones in the checkpoint,
        and only then deletes the others. False if retention has taken one of these meanwhile, or
        the log takes no changes any more; the cleaned ones are to be discarded then.
        """
        if self._failure is not None or self._is_closed:
            return False
        if not self._chain.replace(swap.replaced, swap.cleaned):
            return False
        self._removed += swap.replaced
        self._wants_checkpoint = True
        self._has_clean_checkpoint = False
        return True

    def finish_cleaning(self, cleaning: Cleaning) -> None:
        """Notes how far the log is clean, after the last step of a pass."""
        self._cleanliness = cleaning.cleanliness
        self._wants_checkpoint = True
        self._has_clean_checkpoint = False

    def producer_ids(self) -> list[int]:
        """The ids of the idempotent producers that the log knows."""
        return self._producers.ids()

    def expire_producers(self, now_ms: int, *, silent_ms: int) -> int:
        """Forgets idempotent producers silent for longer than `silent_ms`; returns how many."""
        return self._producers.expire(now_ms, silent_ms=silent_ms)
