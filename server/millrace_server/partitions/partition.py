"""A partition on this broker: its log, its high watermark, and what waits for that to move.

Invariant: `log_start <= high_watermark <= log_end`, and the high watermark never goes back. Of a
partition with one replica it is the *stored end*: the durable end of the log when the topic's
`durability` is `fsync`, so consumers never read a record that a power cut could take back; with
`os` the end of the log. A partition with a `replica` is told where its records are committed: the
metadata log by its quorum, a replicated one by its leader. Appends wait for it, for their acks
(`ack_purgatory`; those of the leader alone at the stored end), and fetches, for more (`watchers`).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial

from millrace_protocol.records import BatchHeader
from millrace_server.disk.flusher import Flusher
from millrace_server.environment.seams import Environment, Spawn
from millrace_server.log import (
    Appended,
    Cleaning,
    CorruptRange,
    LogClosed,
    LogConfig,
    LogFailed,
    LogRead,
    OffsetOutOfRange,
    PartitionLog,
    Piece,
    Swap,
)
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.ack_purgatory import AckPurgatory, OnAck
from millrace_server.partitions.core_errors import start_not_durable
from millrace_server.partitions.high_watermark import HighWatermark
from millrace_server.partitions.log_statistics import LogStatistics
from millrace_server.partitions.replica_hooks import ReplicaHooks
from millrace_server.partitions.role import Leadership, Role
from millrace_server.partitions.watchers import Watchers

UNSYNCED_BYTES_MAX = 64 << 20
"""With `durability=os` a sync starts after this much: more dirty pages would stall the disk."""
_EPOCH_NOT_DURABLE = "the disk is too full to write down a leader epoch"
PRODUCER_SILENT_MS_MAX = 86_400_000
"""An idempotent producer that wrote nothing for this long is forgotten, as in Kafka."""


class Partition:
    """One partition. Its `watchers` are called when the high watermark moves, and at its end."""

    __slots__ = (
        "_epochs_saved",
        "_flusher",
        "_on_corruption",
        "_on_failure",
        "_start_acks",
        "_statistics",
        "_stored_acks",
        "_unsynced_bytes",
        "background",
        "committed",
        "ending",
        "env",
        "is_abandoned",
        "is_cleanable",
        "leadership",
        "log",
        "number",
        "replica",
        "topic",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        number: int,
        log: PartitionLog,
        env: Environment,
        scheduler: FairScheduler,
        *,
        on_failure: Callable[[BaseException], None],
        on_corruption: Callable[[Partition, CorruptRange], None],
        statistics: LogStatistics,
        replica: ReplicaHooks | None = None,
    ) -> None:
        """With `replica` the partition follows at first, and only `advance_high_watermark` moves
        its high watermark."""
        self.topic = topic
        self.number = number
        self.log = log
        role = Role.LEADER if replica is None else Role.FOLLOWER
        self.leadership = Leadership(role, log.leader_epoch)
        self._epochs_saved: asyncio.Future[None] | None = None
        self.is_abandoned = False
        """Whether the replica was removed, with its topic or alone: nothing more will come."""
        self.is_cleanable = True
        """Whether compaction has found nothing yet that it cannot read."""
        self.ending = asyncio.Event()
        self.background = asyncio.Lock()
        """Held by work in the background, so that no segment is closed or removed under it."""
        self.watchers = Watchers(scheduler)
        self._start_acks = AckPurgatory()
        self._stored_acks = AckPurgatory()
        self._on_failure = on_failure
        self.env = env
        self._statistics = statistics
        self._flusher = self._make_flusher()
        self._on_corruption = partial(on_corruption, self)
        log.reader.watch_corruption(self._on_corruption)
        self.replica = replica
        # All that an opened log holds is durable, but for one that is read-only. With `os` the high
        # watermark was the log's end before the start, and it never goes back.
        end_offset = self.stored_offset if replica is None else log.start_offset
        self.committed = HighWatermark(end_offset, self.watchers)
        self._unsynced_bytes = 0

    @property
    def config(self) -> LogConfig:
        """What the log knows of its topic's configuration."""
        return self.log.config

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self.log.end_offset

    @property
    def size_bytes(self) -> int:
        """The size of all batches."""
        return self.log.size_bytes

    @property
    def high_watermark(self) -> int:
        """The first offset that consumers may not read yet."""
        return self.committed.offset

    @property
    def stored_offset(self) -> int:
        """Every record before it is stored as safely as the topic's `durability` asks for."""
        log = self.log
        return log.end_offset if log.config.durability == "os" else log.durable_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leadership in which this broker leads or follows."""
        return self.leadership.epoch

    def check_leader(self) -> None:
        """Raises `ApiError` unless this broker leads the partition."""
        if self.leadership.role is not Role.LEADER:
            raise self.leadership.not_leader(f"{self.topic}-{self.number}")

    async def become_leader(self, epoch: int) -> None:
        """Leads in `epoch`, once the epoch and where it begins are durable (KAFKA-7415).

        Raises `ValueError` if the epoch is older than the partition's, `LogFailed` as no flush is
        to come, and `OSError` on a full disk if it has replicas elsewhere; one without them waits.
        """
        self.leadership.check_next(epoch)
        if self.log.failure is not None:
            raise LogFailed(self.log.directory, self.log.failure)
        self.leadership = self.leadership.ending()
        self.log.begin_epoch(epoch)
        if self.log.durable_epoch < epoch:
            await self.epochs_durable()
        self.leadership = Leadership(Role.LEADER, epoch)
        self.watchers.call()

    async def become_follower(self, epoch: int, leader_id: int) -> None:
        """Follows `leader_id` in `epoch`: from now on requests of clients are refused.

        Returns when no flush of the leadership is in flight, and the log has no epoch without a
        record. Raises as `become_leader`.
        """
        self.stop_leading(epoch, leader_id)
        await self.stop_flusher()
        self.start_flusher()
        if self.log.failure is None and self.log.forget_unused_epochs():
            await self.epochs_durable()

    def stop_leading(self, epoch: int, leader_id: int) -> None:
        """Refuses clients from now on. Raises `ValueError` if the epoch is an older one."""
        self.leadership.check_next(epoch)
        self.leadership = Leadership(Role.FOLLOWER, epoch, leader_id)
        for acks in (self.committed.acks, self._stored_acks, self._start_acks):
            acks.end(self.leadership.not_leader(f"{self.topic}-{self.number}"))
        self.watchers.call()

    async def epochs_durable(self) -> None:
        """Returns when the epoch table is on the disk as it is now."""
        self._epochs_saved = asyncio.get_running_loop().create_future()
        self._flusher.request()
        await self._epochs_saved

    def note_fetched(self, end_offset: int, size_bytes: int) -> None:
        """Takes what was appended from the leader, and requests a flush."""
        self.committed.unreadable.append((end_offset, size_bytes))
        self._unsynced_bytes += size_bytes
        is_due = self._unsynced_bytes >= UNSYNCED_BYTES_MAX or self.log.is_flush_due
        if is_due or self.log.config.durability == "fsync":
            self._unsynced_bytes = 0
            self._flusher.request()

    async def stop_flusher(self) -> None:
        """Returns when no flush is in flight; requests wait for `start_flusher`."""
        await self._flusher.close()

    def start_flusher(self) -> None:
        """Flushes what was requested meanwhile, and what is requested later."""
        self._flusher.reopen()

    def append(self, batch: memoryview, header: BatchHeader, *, now_ms: int) -> Appended:
        """Appends one checked batch, and requests the flush that its topic's durability needs.

        Raises what `PartitionLog.append` raises, and `ApiError` while another epoch begins, which
        no reader was told of. Then nothing was appended.
        """
        log, size_bytes = self.log, len(batch)
        if self.leadership.is_ending:
            raise self.leadership.not_leader(f"{self.topic}-{self.number}")
        try:
            appended = log.append(batch, header, now_ms=now_ms)
        except OSError as error:
            if log.is_failed:
                self._flusher.fail(error)
            raise
        if not appended.duplicate:
            statistics = self._statistics
            statistics.appends += 1
            statistics.appended_records += header.record_count
            statistics.appended_bytes += size_bytes
            self.committed.unreadable.append((appended.last_offset + 1, size_bytes))
            if self.replica is not None:
                self.replica.on_appended()
        if log.config.durability == "fsync":
            self._flusher.request()
            return appended
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= UNSYNCED_BYTES_MAX or log.is_flush_due:
            self._unsynced_bytes = 0
            self._flusher.request()
        if self.replica is None:
            self.committed.advance(log.end_offset)
        else:
            self.replica.on_stored()
        return appended

    def is_acked(self, end_offset: int, *, is_by_all: bool = True) -> bool:
        """Whether all before `end_offset` is committed; stored here, unless `is_by_all`."""
        return end_offset <= (self.committed.offset if is_by_all else self.stored_offset)

    def on_ack(self, end_offset: int, on_ack: OnAck, *, is_by_all: bool = True) -> None:
        """Calls `on_ack(None)` when `is_acked` is true.

        It is called with the error instead if that will not be, and within this call if either is
        known already.
        """
        if self.is_acked(end_offset, is_by_all=is_by_all):
            on_ack(None)
        else:
            acks = self.committed.acks if is_by_all else self._stored_acks
            acks.wait(end_offset, on_ack)

    def check_end_known(self) -> None:
        """Raises `ApiError` while a new leader does not know how far its log is committed."""
        if self.replica is not None:
            self.replica.check_end_known()

    def acked(self, end_offset: int) -> asyncio.Future[None]:
        """The same as a future, for a task that waits for its own records."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_ack(end_offset, partial(_settle, future))
        return future

    def read(self, offset: int, *, max_bytes: int) -> LogRead:
        """What consumers may read from `offset`; the caller releases the slice."""
        return self.log.reader.read(offset, max_bytes=max_bytes, end_offset=self.committed.offset)

    def check_readable(self, offset: int) -> None:
        """Raises `OffsetOutOfRange` unless consumers may read from `offset`, now or later."""
        if not self.log.start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log.start_offset, self.high_watermark)

    def split(
        self, start_offset: int, *, end_offset: int, piece_bytes: int, pieces_max: int
    ) -> list[Piece]:
        """See `LogReader.split`; raises `OffsetOutOfRange` beyond what consumers may read."""
        self.check_readable(start_offset)
        self.check_readable(end_offset)
        return self.log.reader.split(
            start_offset, end_offset=end_offset, piece_bytes=piece_bytes, pieces_max=pieces_max
        )

    def reconfigure(self, config: LogConfig) -> None:
        """Takes changed topic settings. The high watermark does not go back with them."""
        self.log.config = config
        self._note_stored()
        self._flusher.request()

    def replace_log(self, log: PartitionLog) -> None:
        """Takes the log that recovery has repaired in the place of one that is read-only."""
        read_only, self.log = self.log, log
        if log.leader_epoch < self.leader_epoch:
            log.begin_epoch(self.leader_epoch)
        log.reader.watch_corruption(self._on_corruption)
        self._flusher = self._make_flusher()
        # More than recovery has added: every parked fetch is answered with what there is.
        self.committed.readable_bytes += log.size_bytes
        read_only.discard()
        self._note_stored()

    def run_retention(self, now_ms: int) -> int:
        """Retention, and a flush if there is something to write; returns segments removed."""
        log = self.log
        if log.is_failed or self._flusher.is_closed:
            return 0
        removed = len(log.retention(now_ms, high_watermark=self.high_watermark))
        if removed and self.replica is not None:
            self.replica.on_start_moved()
        log.producers.expire(now_ms, silent_ms=PRODUCER_SILENT_MS_MAX)
        log.close_idle_files()
        if log.is_flush_due or log.durable_offset < log.end_offset:
            self._flusher.request()
        return removed

    def advance_start(self, offset: int) -> None:
        """Deletes the records before `offset`, durably before long. Raises as `PartitionLog`'s."""
        self.log.advance_start(offset, high_watermark=self.high_watermark)
        if self.replica is not None:
            self.replica.on_start_moved()
        self._flusher.request()

    def start_durable(self, offset: int) -> asyncio.Future[None]:
        """Is done when no crash brings back a record before `offset`, where the log begins now.

        Fails with the error if that will not be, with DISK_FULL on a full disk."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.durable_start_offset >= offset:
            future.set_result(None)
        else:
            self._start_acks.wait(offset, partial(_settle, future))
        return future

    def begin_cleaning(self, now_ms: int, *, keys_max: int) -> Cleaning | None:
        """A pass of compaction if one is due; the caller holds `background`."""
        if self.ending.is_set() or not self.is_cleanable:
            return None
        return self.log.cleaner.begin(now_ms, high_watermark=self.high_watermark, keys_max=keys_max)

    def swap(self, swap: Swap) -> bool:
        """Puts cleaned segments in force, and has that written down; False if that cannot be."""
        is_swapped = self.log.cleaner.swap(swap)
        self._flusher.request()
        return is_swapped

    def finish_cleaning(self, cleaning: Cleaning) -> None:
        """Notes, durably before long, how far the log is clean."""
        self.log.cleaner.finish(cleaning)
        self._flusher.request()

    def fail(self, error: BaseException) -> None:
        """Ends after an error of the disk that was met in the background."""
        self._flusher.fail(error)

    async def shut(self, spawn: Spawn) -> None:
        """Ends the partition in order: all is durable, and the log says that it was closed."""
        await self._end_background()
        await self._flusher.close()
        self._fail_waiting(LogClosed(self.log.directory))
        await spawn.blocking(self.log.close)

    async def abandon(self) -> None:
        """Ends a replica that is removed; every waiting request gets an answer."""
        await self._end_background()
        await self._flusher.close()
        self._fail_waiting(LogClosed(self.log.directory))
        self.log.discard()
        self.is_abandoned = True
        self.watchers.call()

    async def _end_background(self) -> None:
        self.ending.set()
        async with self.background:
            pass

    def _make_flusher(self) -> Flusher:
        return Flusher(
            self.log,
            self.env,
            on_durable=self._advance,
            on_failure=self._fail_acks,
            durations=self._statistics.flush_durations,
            on_checkpoint=self._on_checkpoint,
        )

    def _on_checkpoint(self, is_written: bool) -> None:
        if is_written:
            self._start_acks.advance(self.log.durable_start_offset)
            if self.replica is not None:
                self.replica.on_start_durable()
        else:
            self._start_acks.end(start_not_durable())

    def _advance(self) -> None:
        if self.log.durable_epoch == self.log.leader_epoch:
            _settle(self._epochs_saved, None)
        elif self.log.are_epochs_refused and self.replica is not None:
            _settle(self._epochs_saved, OSError(errno.ENOSPC, _EPOCH_NOT_DURABLE))
        self._note_stored()

    def _note_stored(self) -> None:
        self._stored_acks.advance(self.stored_offset)
        if self.replica is not None:
            self.replica.on_stored()
        elif self.leadership.role is Role.LEADER:
            self.committed.advance(self.stored_offset)

    def lower_high_watermark(self, offset: int) -> None:
        """An unclean election has given up records: what was committed ends at `offset`."""
        self.committed.offset = min(self.committed.offset, offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Takes the decision of a quorum: all before `offset` is committed."""
        self.committed.advance(offset)

    def _fail_acks(self, error: BaseException) -> None:
        _settle(self._epochs_saved, LogFailed(self.log.directory, error))
        self._fail_waiting(LogFailed(self.log.directory, error))
        self._on_failure(error)

    def _fail_waiting(self, error: Exception) -> None:
        for acks in (self.committed.acks, self._stored_acks, self._start_acks):
            acks.fail(error)


def _settle(future: asyncio.Future[None] | None, error: Exception | None) -> None:
    if future is None or future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
