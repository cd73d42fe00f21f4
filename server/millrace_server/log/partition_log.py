"""The log of one partition: offsets from 0 that are given once and never change, in segments.

Owns append, the start and the end of the log, and its life from open to close. Refuses to know
topics, replicas and threads: blocking work is handed out as a `FlushTicket` or a `Cleaning`, files
come from the `Disk` seam, and time is a parameter. One log belongs to one event loop. Its parts
share a `LogState`: `reader` answers what is in it, `cleaner` compacts it, `range_repairs` mends it,
`durability` knows what of it is on the disk.

    start_offset <= durable_offset <= end_offset
"""

from __future__ import annotations

from millrace_protocol.records import BatchHeader, BatchTooLarge, assign, stamp_log_append_time
from millrace_server.environment.seams import Disk, ReadBuffer
from millrace_server.log.appended import Appended
from millrace_server.log.beginning_anew import begin_at
from millrace_server.log.compaction.cleaner import LogCleaner
from millrace_server.log.config import LogConfig
from millrace_server.log.creation import create_files
from millrace_server.log.durability import Durability, is_disk_full
from millrace_server.log.epochs import EpochEnd, EpochTable
from millrace_server.log.errors import CorruptLog, OffsetOutOfRange, ReadOnlyLog
from millrace_server.log.flush import FlushTicket
from millrace_server.log.follower_batches import check_for_follower
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.log_start import advance_start, remove_expired
from millrace_server.log.producers import Producers
from millrace_server.log.range_repair import RangeRepairs
from millrace_server.log.reader import LogReader
from millrace_server.log.recovered import Recovered, RecoveryReport
from millrace_server.log.recovery import recover
from millrace_server.log.rolling import must_roll, roll
from millrace_server.log.segment import Segment
from millrace_server.log.state import LogState
from millrace_server.log.truncation import truncate

WriteBuffer = bytearray | memoryview


class PartitionLog:
    """Created or opened once, appended to and read, then closed; dead after a failed sync."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, recovered: Recovered) -> None:
        """Takes over what `recover` found; use `create` or `open`."""
        self.directory = directory
        self.recovery: RecoveryReport = recovered.report
        self._state = LogState.of(disk, directory, config, recovered)
        self._chain = self._state.chain
        self._durability = Durability(self._state, recovered)
        self.reader = LogReader(self._state, self._durability)
        self.cleaner = LogCleaner(self._state, self._durability)
        self.range_repairs = RangeRepairs(self._state)

    @classmethod
    def create(
        cls, disk: Disk, directory: str, config: LogConfig, *, sync_parent: bool = True
    ) -> PartitionLog:
        """Makes the directory of a new, empty log. Blocking; raises `OSError`.

        It is durable when the parent directory has been synced, here or later for many logs.
        """
        files = create_files(disk, directory, config, sync_parent=sync_parent)
        return cls(disk, directory, config, files)

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
            or log.durable_offset < log.end_offset
            or report.cut is not None
            or log._chain.unsettled
            or log._durability.are_epochs_dirty
        ):
            log._durability.note_recovered()
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
        log.fail(ReadOnlyLog(directory, cause))
        try:
            position = log._chain.find(log.durable_offset).position
            log._durability.durable_end = Boundary(position, log.durable_offset)
        except (CorruptLog, OSError):
            log.discard()
            raise
        return log

    @property
    def config(self) -> LogConfig:
        """The limits in force; may be replaced at any time."""
        return self._state.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._state.config = config

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._state.start_offset

    @property
    def durable_start_offset(self) -> int:
        """Records before it do not come back after a crash."""
        return self._durability.durable_start_offset

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self._state.end_offset

    @property
    def durable_offset(self) -> int:
        """Everything before it survives a power cut."""
        return self._durability.durable_end.offset

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
        return self._state.failure is not None

    @property
    def read_only_cause(self) -> OSError | None:
        """Why the log is read-only, None if it is not; a read-only log `is_failed`, too."""
        failure = self._state.failure
        return failure.cause if isinstance(failure, ReadOnlyLog) else None

    @property
    def failure(self) -> BaseException | None:
        """The error that has stopped the log."""
        return self._state.failure

    @property
    def is_flush_due(self) -> bool:
        """Whether a flush is worth it although no ack waits for one: ask after an append."""
        return self._durability.is_flush_due

    # Appending

    def append(self, batch: WriteBuffer, header: BatchHeader, *, now_ms: int) -> Appended:
        """Gives one checked batch the next offsets and writes it; it is not durable yet.

        `batch` is exactly the batch that `header` was read from; its offset, the log's leader
        epoch and, if the topic says so, timestamp are written into it. Raises `BatchTooLarge`, a
        `LogRefusal` or `LogFailed`, and `OSError` if the write fails: then nothing is appended,
        and unless the disk is merely full the log has failed.
        """
        state = self._state
        if state.failure is not None or state.is_closed:
            raise state.stopped()
        config = state.config
        size_bytes = len(batch)
        if size_bytes > config.max_message_bytes:
            raise BatchTooLarge(size_bytes, config.max_message_bytes)
        if header.producer_id >= 0:
            repeated = state.producers.check(header)
            if repeated is not None:
                return Appended(
                    repeated.base_offset, repeated.last_offset, repeated.log_append_time_ms, True
                )
        base_offset = state.end_offset
        last_offset = base_offset + header.last_offset_delta
        timestamp, log_append_time_ms = header.max_timestamp, -1
        if config.timestamp_type == "LogAppendTime":
            timestamp = log_append_time_ms = now_ms
            stamp_log_append_time(batch, timestamp_ms=now_ms)
        else:
            config.check_timestamps(header.base_timestamp, timestamp, now_ms=now_ms)
        assign(batch, base_offset=base_offset, leader_epoch=state.epochs.latest)
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
        state = self._state
        state.check_changes()
        checked = check_for_follower(
            batches, next_offset=state.end_offset, leader_epoch=self.leader_epoch
        )
        for batch, header in checked:
            if header.base_offset > state.end_offset:
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
            state.epochs = state.epochs.begin(header.partition_leader_epoch, header.base_offset)
        return state.end_offset

    def _note_gap(self, gap_end: int) -> None:
        try:
            self._durability.note_gap(gap_end)
        except OSError as error:
            self._fail_unless_full(error)
            raise

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
        state, durability = self._state, self._durability
        size_bytes, last_offset = len(batch), base_offset + header.last_offset_delta
        active = self._chain.active
        try:
            if active.size_bytes and must_roll(
                active, state.config, size_bytes, last_offset, timestamp, now_ms
            ):
                active = roll(state, durability)
            if state.config.durability == "os":
                # With fsync each flush reserves, in its thread.
                durability.reserve()
            active.write(batch)
        except OSError as error:
            self._fail_unless_full(error)
            raise
        active.extend(
            base_offset=base_offset,
            last_offset=last_offset,
            size_bytes=size_bytes,
            max_timestamp=timestamp,
        )
        if active.first_timestamp < 0:
            active.first_timestamp = now_ms
        state.end_offset = last_offset + 1
        durability.has_clean_checkpoint = False
        durability.bytes_behind += size_bytes
        durability.batches_behind += 1
        if header.producer_id >= 0:
            state.producers.note(
                header,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                now_ms=now_ms,
            )

    def _fail_unless_full(self, error: OSError) -> None:
        if not is_disk_full(error):
            self._state.fail(error)

    # Leader epochs

    @property
    def leader_epoch(self) -> int:
        """The epoch that the log writes into batches: the latest of its table."""
        return self._state.epochs.latest

    @property
    def durable_epoch(self) -> int:
        """The latest epoch of the table that is on the disk, -1 if none is."""
        return self._durability.durable_epoch

    @property
    def are_epochs_refused(self) -> bool:
        """Whether the last flush has left the epoch table to a later one, on a full disk."""
        return self._durability.are_epochs_refused

    def begin_epoch(self, epoch: int) -> None:
        """See `LogState.begin_epoch`."""
        self._state.begin_epoch(epoch)

    def forget_unused_epochs(self, *, is_anew: bool = False) -> bool:
        """See `LogState.forget_unused_epochs`."""
        return self._state.forget_unused_epochs(is_anew=is_anew)

    @property
    def epochs(self) -> EpochTable:
        """Which leader wrote which part of what can be read."""
        return self._state.epochs.trim_to(self._state.start_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """See `EpochTable.end_offset_for` (KIP-279)."""
        return self._state.end_offset_for_epoch(epoch)

    def truncate_to(self, offset: int, *, high_watermark: int, now_ms: int) -> int:
        """Takes off the batches from the one that holds `offset` on; returns the log's end.

        Blocking; no flush may be in flight. `offset` is not below the high watermark. A crash
        leaves the log as it was, as it is afterwards, or with a part of the tail. Raises
        `OffsetOutOfRange`, `CorruptLog`, `LogFailed` and `OSError`: a full disk leaves the log as
        it was, after any other error it has failed.
        """
        state = self._state
        if not max(state.start_offset, high_watermark) <= offset:
            raise OffsetOutOfRange(offset, high_watermark, state.end_offset)
        if offset < state.end_offset:
            self.flush(checkpoint=True)
            truncate(state, self._durability, offset, now_ms=now_ms)
            self.flush()
        return state.end_offset

    def begin_at(self, offset: int) -> int:
        """Gives up every record and begins the log at `offset`, wherever that is; returns it.

        Blocking; no flush may be in flight. Faults and crashes: see `beginning_anew`.
        """
        self.flush(checkpoint=True)
        begin_at(self._state, self._durability, offset)
        self.flush(checkpoint=True)
        return offset

    # The start of the log

    def retention(self, now_ms: int, *, high_watermark: int) -> list[Segment]:
        """Takes the segments out of the log that its retention no longer keeps; returns them.

        `start_offset` moves at once. The next flush writes it down, and only then deletes the
        files; readers keep the files they hold. Never the active segment, and nothing at
        or above the high watermark. An active segment that is too old as a whole is rolled, so
        that a topic without producers is emptied too, by the next call after a flush. Of a log that
        is only compacted go the segments that lie before its start.
        """
        return remove_expired(
            self._state, self._durability, now_ms=now_ms, high_watermark=high_watermark
        )

    def advance_start(self, offset: int, *, high_watermark: int) -> None:
        """Begins the log at `offset`: no record before it can be read any more.

        The next flush writes that down, and only then deletes the segments that lie before it. A
        crash until then leaves the start as it was. Never goes back: a lower offset changes
        nothing. Raises `OffsetOutOfRange` above the high watermark, and `LogFailed`. Source:
        Kafka's `maybeIncrementLogStartOffset`.
        """
        self._state.check_changes()
        advance_start(self._state, self._durability, offset, high_watermark=high_watermark)

    @property
    def producers(self) -> Producers:
        """The idempotent producers that the log knows."""
        return self._state.producers

    # Durability, and the end

    def begin_flush(
        self, *, checkpoint: bool = False, preallocate: bool = True, closing: bool = False
    ) -> FlushTicket | None:
        """Takes note of all that is to be made durable; None if there is nothing to do.

        The ticket goes through `sync`, `finish_flush`, `settle`, `finish_settle`; if a step fails,
        through `fail` and `finish_settle`. There is one at a time. Raises `LogFailed`.
        """
        self._state.check_changes()
        return self._durability.begin(
            checkpoint=checkpoint, preallocate=preallocate, closing=closing
        )

    def finish_flush(self, ticket: FlushTicket) -> None:
        """Moves `durable_offset` to where `sync` has made the log durable."""
        self._durability.finish_sync(ticket)

    def finish_settle(self, ticket: FlushTicket) -> None:
        """Ends a ticket, whatever became of it, and releases its files."""
        self._durability.finish_settle(ticket)

    def flush(self, *, checkpoint: bool = False, preallocate: bool = True) -> None:
        """Does a whole flush here and now. Blocking; raises `OSError` and `LogFailed`."""
        if ticket := self.begin_flush(checkpoint=checkpoint, preallocate=preallocate):
            self._durability.run(ticket)

    def fail(self, error: BaseException) -> None:
        """Stops the log after a disk error: what is there can be read."""
        self._state.fail(error)

    def close(self) -> None:
        """Makes everything durable, marks the log as closed in order, closes all files. Blocking.

        Of a log that has failed only the files are closed, as they are after an `OSError`.
        """
        if self._state.is_closed:
            return
        try:
            if self._state.failure is None and not self._durability.has_clean_checkpoint:
                ticket = self.begin_flush(checkpoint=True, preallocate=False, closing=True)
                if ticket is not None:
                    self._durability.run(ticket)
        finally:
            self.discard()

    def discard(self) -> None:
        """Closes all files and writes nothing: the partition is deleted."""
        self._state.is_closed = True
        self._chain.close_files()
        self._durability.recovery_point.close()

    def close_idle_files(self) -> None:
        """Closes what only a log needs that was flushed lately."""
        if not self._durability.is_in_flight:
            self._durability.recovery_point.close_if_unused()
