"""What of a log is on the disk, and what the next flush puts there.

Owns the durable end, what lies behind the checkpoint, and the one `FlushTicket` in flight. Refuses
to know appends and reads; the steps of a flush are `flush`'s.

    durable_offset <= state.end_offset

An append is one write and a few lines of memory: index files, the checkpoint and the checkpoint's
producers are written by the flush, so a failure there can lose neither offsets nor data
(KAFKA-7866, KAFKA-10778).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millrace_server.log.checkpoint import Checkpoint, ClosedSegment
from millrace_server.log.epochs import NO_EPOCH
from millrace_server.log.flush import DISK_FULL_ERRNOS, FlushTicket, IndexTail
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.offset_gaps import write_gap_end
from millrace_server.log.preallocation import wanted_bytes
from millrace_server.log.recovered import Recovered
from millrace_server.log.recovery_point import RecoveryPointFile
from millrace_server.log.segment import Segment
from millrace_server.log.state import LogState

CHECKPOINT_BYTES: Final = 32 * 1024 * 1024
CHECKPOINT_BATCHES: Final = 8192
"""How much may lie behind a checkpoint: about 30 ms of reading after a crash, per partition."""


class Durability:
    """One per log. `bytes_behind` and `batches_behind` count what the checkpoint does not cover.

    `has_clean_checkpoint`: nothing has changed since a checkpoint that says so was written.
    """

    __slots__ = (
        "_gap_end",
        "_is_directory_dirty",
        "_is_gap_end_dirty",
        "_removed",
        "_saved_epochs",
        "_state",
        "_ticket",
        "_wants_checkpoint",
        "are_epochs_refused",
        "batches_behind",
        "bytes_behind",
        "durable_end",
        "durable_start_offset",
        "has_clean_checkpoint",
        "recovery_point",
    )

    def __init__(self, state: LogState, recovered: Recovered) -> None:
        self._state = state
        self.recovery_point = RecoveryPointFile(state.disk, state.directory)
        # Its position is right when all is durable, as it is when `PartitionLog.open` has flushed.
        self.durable_end = Boundary(state.chain.active.size_bytes, recovered.durable_offset)
        """Where what is durable ends in the active segment."""
        self.durable_start_offset = recovered.start_offset
        """Where the log begins by the checkpoint, or by what another recovery finds again."""
        self.bytes_behind = recovered.bytes_behind_checkpoint
        self.batches_behind = recovered.batches_behind_checkpoint
        self.has_clean_checkpoint = recovered.report.is_clean
        self._saved_epochs = recovered.saved_epochs
        self.are_epochs_refused = False
        """Whether the last flush was to write the epoch table, and the disk was too full."""
        self._gap_end = recovered.gap_end
        self._is_gap_end_dirty = False
        self._is_directory_dirty = False
        self._wants_checkpoint = False
        self._removed: list[Segment] = []
        self._ticket: FlushTicket | None = None

    @property
    def durable_offset(self) -> int:
        """Everything before it survives a power cut."""
        return self.durable_end.offset

    @property
    def durable_epoch(self) -> int:
        """The latest epoch of the table that is on the disk, -1 if none is."""
        return NO_EPOCH if self._saved_epochs is None else self._saved_epochs.latest

    @property
    def are_epochs_dirty(self) -> bool:
        """Whether the epoch table is not on the disk as it is."""
        return self._state.epochs is not self._saved_epochs

    @property
    def is_flush_due(self) -> bool:
        """Whether a flush is worth it although no ack waits for one: ask after an append."""
        return (
            self._wants_checkpoint
            or self.bytes_behind >= CHECKPOINT_BYTES
            or self.batches_behind >= CHECKPOINT_BATCHES
            or self._state.epochs is not self._saved_epochs
        )

    @property
    def is_in_flight(self) -> bool:
        """Whether a flush has begun and not ended."""
        return self._ticket is not None

    def settled_offset(self, high_watermark: int) -> int:
        """The offset before which all is durable, below the high watermark, and in segments whose
        files do not change any more."""
        limit_offset = min(high_watermark, self.durable_offset)
        unsettled = self._state.chain.unsettled
        return min(limit_offset, unsettled[0].base_offset) if unsettled else limit_offset

    def note_change(self) -> None:
        """What the checkpoint says is not so any more: the next flush writes another one."""
        self._wants_checkpoint = True
        self.has_clean_checkpoint = False

    def note_new_segment(self, segment: Segment) -> None:
        """A segment was begun; its name is not durable."""
        segment.is_dense = segment.base_offset >= self._gap_end
        self._is_directory_dirty = self._wants_checkpoint = True

    def note_recovered(self) -> None:
        """Recovery has changed names and sizes: a flush has to follow."""
        self._is_directory_dirty = self._wants_checkpoint = True

    def note_removed(self, segments: Sequence[Segment]) -> None:
        """Segments are out of the log; their files go behind a checkpoint without them."""
        self._removed += segments
        self.note_change()

    def note_gap(self, gap_end: int) -> None:
        """Writes down that offsets before `gap_end` are missing, before the batch behind them.

        Raises `OSError`: the gap must not be taken over then.
        """
        write_gap_end(self._state.disk, self._state.directory, gap_end)
        self._gap_end = gap_end
        self._is_gap_end_dirty = True
        self._state.chain.active.is_dense = False

    def note_truncated(self, cut: Boundary) -> None:
        """The log ends at `cut`, durably."""
        self.durable_end = cut
        self.has_clean_checkpoint = False

    def note_begun_anew(self, offset: int) -> None:
        """The log is empty and begins at `offset`, durably."""
        self.note_truncated(Boundary(0, offset))
        self.durable_start_offset = offset
        self.bytes_behind = self.batches_behind = 0

    def reserve(self) -> None:
        """Reserves the space that the active segment wants, unless a flush is there to do it.

        Blocking, for 30 to 90 us, and longer beside a flush, which has the file's inode: while one
        is in flight nothing is reserved. Neither is on a full disk. Raises any other `OSError`.
        """
        config, active = self._state.config, self._state.chain.active
        if self._ticket is not None or not config.preallocate:
            return
        size_bytes = wanted_bytes(
            active.size_bytes, active.allocated_bytes, limit_bytes=config.segment_bytes
        )
        if size_bytes is None:
            return
        try:
            active.file.preallocate(size_bytes)
            active.allocated_bytes = size_bytes
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise

    def begin(self, *, checkpoint: bool, preallocate: bool, closing: bool) -> FlushTicket | None:
        """Takes note of all that is to be made durable; None if there is nothing to do."""
        state = self._state
        if self._ticket is not None:
            raise RuntimeError(f"{state.directory}: a flush is in flight")
        is_dirty = self.durable_offset < state.end_offset
        is_checkpoint_due = (
            checkpoint
            or self._wants_checkpoint
            or self.bytes_behind >= CHECKPOINT_BYTES
            or self.batches_behind >= CHECKPOINT_BATCHES
        )
        active = state.chain.active
        preallocation = None
        if preallocate and state.config.preallocate:
            preallocation = wanted_bytes(
                active.size_bytes, active.allocated_bytes, limit_bytes=state.config.segment_bytes
            )
        are_epochs_dirty = self.are_epochs_dirty
        if not (is_dirty or is_checkpoint_due or preallocation or are_epochs_dirty):
            return None
        ticket = FlushTicket(
            state.disk,
            state.directory,
            state.end_offset,
            active,
            active.size_bytes,
            self.recovery_point if is_dirty else None,
            state.epochs if are_epochs_dirty else None,
        )
        for segment in (*state.chain.unsettled, active):
            if segment.end_offset > self.durable_offset:
                ticket.hold_dirty(segment.file)
        ticket.sync_gap_end, self._is_gap_end_dirty = self._is_gap_end_dirty, False
        ticket.sync_directory, self._is_directory_dirty = self._is_directory_dirty, False
        if is_checkpoint_due:
            self._add_checkpoint(ticket, is_closing=closing)
        if preallocation is not None:
            ticket.hold_preallocation(active, preallocation)
        self._ticket = ticket
        return ticket

    def finish_sync(self, ticket: FlushTicket) -> None:
        """Moves `durable_offset` to where the ticket's `sync` has made the log durable."""
        self.durable_end = Boundary(ticket.end_position, ticket.end_offset)
        self._note_epochs(ticket)
        self.are_epochs_refused = ticket.epochs is not None and not ticket.are_epochs_saved

    def finish_settle(self, ticket: FlushTicket) -> None:
        """Ends a ticket, whatever became of it, and releases its files."""
        self._note_epochs(ticket)
        if ticket.is_settled:
            for segment, _ in ticket.rolled:
                self._state.chain.settle(segment)
            if ticket.index_tail is not None:
                ticket.index_tail.note_saved()
            if ticket.checkpoint is not None:
                state = self._state
                self.durable_start_offset = ticket.checkpoint.start_offset
                state.epochs = state.epochs.trim_to(self.durable_start_offset)
        elif ticket.checkpoint is not None:
            self._wants_checkpoint = True
            self._removed = ticket.removed + self._removed
        ticket.note_preallocated()
        ticket.release()
        self._ticket = None

    def run(self, ticket: FlushTicket) -> None:
        """Does a whole flush here and now. Blocking; raises `OSError`, and the log has failed."""
        try:
            ticket.sync()
            self.finish_sync(ticket)
            ticket.settle()
        except OSError as error:
            self._state.fail(error)
            raise
        finally:
            self.finish_settle(ticket)

    def checkpoint(self, *, is_clean: bool) -> Checkpoint:
        """What will be durable once everything up to now is."""
        state, active = self._state, self._state.chain.active
        return Checkpoint(
            start_offset=state.start_offset,
            end_offset=state.end_offset,
            active_base_offset=active.base_offset,
            position=active.size_bytes,
            max_timestamp=active.max_timestamp,
            index_entries=len(active.offsets),
            closed=tuple(map(ClosedSegment.of, state.chain.segments[:-1])),
            producers=state.producers.encode(),
            is_clean=is_clean,
            cleanliness=state.cleanliness,
        )

    def _add_checkpoint(self, ticket: FlushTicket, *, is_closing: bool) -> None:
        chain = self._state.chain
        for segment in chain.unsettled:
            ticket.hold_rolled(segment)
        ticket.index_tail = IndexTail.of(chain.active)
        ticket.checkpoint = self.checkpoint(is_clean=is_closing)
        ticket.removed, self._removed = self._removed, []
        ticket.is_closing = is_closing
        self.has_clean_checkpoint = self._wants_checkpoint = False
        self.bytes_behind = self.batches_behind = 0

    def _note_epochs(self, ticket: FlushTicket) -> None:
        if ticket.are_epochs_saved:
            self._saved_epochs = ticket.epochs


def is_disk_full(error: OSError) -> bool:
    """Whether an error may pass when there is room again; any other stops the log."""
    return error.errno in DISK_FULL_ERRNOS
