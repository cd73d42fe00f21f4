"""The metadata log of this broker: what its replica of the quorum knows of it, and what changes it.

The log is a partition whose high watermark the quorum moves: a record is committed when a majority
of the voters has it on the disk. Every method belongs to the event loop, except where it says that
it blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import MetadataRecord, encode_metadata_record
from millrace_protocol.records import CorruptBatch, batch_ranges, encode_batch, read_header
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Clock, ReadBuffer
from millrace_server.log import LogFailed
from millrace_server.log.epochs import EpochEnd
from millrace_server.metadata.records import UnreadableMetadata, decode_record
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.following import append_fetched, begin_at, truncate_to
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.replay import READ_BYTES, decoded, records_in
from millrace_server.quorum.voter_records import voter_sets
from millrace_server.raft.messages import LogPosition, SnapshotId
from millrace_server.raft.voters import VoterSet

METADATA_TOPIC = "__cluster_metadata"


class NotWritten(ApiError):
    """The metadata log did not take the records; the cluster is as it was."""


class MetadataLog:
    """Implements `raft.log_view.LogView`."""

    def __init__(self, partition: Partition, clock: Clock, snapshots: Sequence[SnapshotId]) -> None:
        """`snapshots` are those that are on the disk, the oldest first."""
        self._partition = partition
        self._clock = clock
        self._snapshots = list(snapshots)
        self.appended_bytes = 0
        """Bytes appended since the start of the broker."""

    # What the replica sees

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._partition.start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._partition.end_offset

    @property
    def durable_offset(self) -> int:
        """Every record before it is on the disk."""
        return self._partition.log.durable_offset

    @property
    def position(self) -> LogPosition:
        """See `LogView`."""
        return LogPosition(self.epoch_before(self.end_offset), self.end_offset)

    def end_offset_for(self, epoch: int) -> EpochEnd | None:
        """See `EpochTable.end_offset_for`."""
        return self._partition.log.end_offset_for_epoch(epoch)

    def newest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot that is whole, None if there is none."""
        return self._snapshots[-1] if self._snapshots else None

    def epoch_before(self, offset: int) -> int:
        """The epoch of the last record before `offset`; 0 before the first record."""
        newest = self.newest_snapshot()
        if newest is not None and newest.end_offset == offset:
            return newest.epoch
        return max(0, self._partition.log.epochs.epoch_before(offset))

    # What the replica does

    @property
    def leader_epoch(self) -> int:
        """The latest epoch of the log."""
        return self._partition.leader_epoch

    @property
    def epoch_start_offset(self) -> int:
        """Where the latest epoch of the log begins, the end of the log while it has no record."""
        entries = self._partition.log.epochs.entries
        return entries[-1].start_offset if entries else self.end_offset

    async def begin_epoch(self, epoch: int) -> None:
        """Leads in `epoch` once that is durable. Raises `LogFailed`."""
        await self._partition.become_leader(epoch)

    async def follow(self, epoch: int, leader_id: int) -> None:
        """Follows in `epoch`; changes that wait for their commit end with an error."""
        await self._partition.become_follower(epoch, leader_id)

    def append_fetched(self, batches: ReadBuffer, *, offset: int) -> list[tuple[int, VoterSet]]:
        """Appends what the leader sent for a fetch from `offset`; returns the voter sets among it,
        each with its offset.

        After an `OSError` the same call may be repeated: what it has appended stays, and only the
        rest is appended. Raises what `PartitionLog.append_as_follower` raises.
        """
        rest = batches
        if self.end_offset > offset:
            ends = [end for _, end, _, last in batch_ranges(batches) if last < self.end_offset]
            rest = memoryview(batches)[max(ends, default=0) :]
        append_fetched(self._partition, rest, now_ms=self._clock.wall_ms())
        self.appended_bytes += len(batches)
        return list(voter_sets(decoded(batches)))

    async def truncate_to(self, end_offset: int) -> None:
        """Takes off what the leader does not have. Raises as `following.truncate_to`."""
        await truncate_to(self._partition, end_offset, now_ms=self._clock.wall_ms())

    async def begin_at(self, snapshot: SnapshotId) -> None:
        """Begins the log behind a snapshot. Raises as `following.begin_at`."""
        await begin_at(self._partition, snapshot.end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Every record before `offset` is committed."""
        self._partition.advance_high_watermark(min(offset, self.end_offset))

    def read_for_follower(self, offset: int, *, max_bytes: int) -> bytes:
        """The batches from `offset` on, committed or not. Blocking.

        Raises `OffsetOutOfRange`, `CorruptLog` and `OSError`.
        """
        log = self._partition.log
        found = log.reader.read(offset, max_bytes=max_bytes, end_offset=log.end_offset)
        if found.slice is None:
            return b""
        try:
            return found.slice.read()
        finally:
            found.slice.release()

    def voter_sets(self) -> list[tuple[int, VoterSet]]:
        """Every voter set in the log, committed or not, with its offset. Blocking."""
        found: list[tuple[int, VoterSet]] = []
        offset = self.start_offset
        while offset < self.end_offset:
            data = self.read_for_follower(offset, max_bytes=READ_BYTES)
            if not data:
                break
            records = decoded(data)
            found += [each for each in voter_sets(records) if each[0] >= offset]
            offset = records[-1][0] + 1
        return found

    # What the controller and the image do

    @property
    def directory(self) -> str:
        """Where its files are, and the snapshots beside them."""
        return self._partition.log.directory

    @property
    def committed_offset(self) -> int:
        """The end of what is committed; exclusive."""
        return self._partition.high_watermark

    def check_usable(self) -> None:
        """Raises `ApiError` after a disk error: the last records may be on the disk or not."""
        log = self._partition.log
        if log.failure is not None:
            raise as_api_error(LogFailed(log.directory, log.failure))

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Appends records as one batch, all or none; returns the log's end offset behind them.

        Raises `NotWritten`.
        """
        now_ms = self._clock.wall_ms()
        batch = encode_batch([encode_metadata_record(r) for r in records], timestamps_ms=now_ms)
        try:
            self._partition.check_leader()
            appended = self._partition.append(memoryview(batch), read_header(batch), now_ms=now_ms)
        except CORE_ERRORS as error:
            refused = as_api_error(error)
            if refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise NotWritten(ErrorCode.NOT_CONTROLLER) from error
            raise NotWritten(refused.code, refused.message) from error
        self.appended_bytes += len(batch)
        return appended.last_offset + 1

    async def committed(self, end_offset: int) -> None:
        """Returns when every record before `end_offset` is committed.

        Raises `ApiError` when it is not known whether they are: the disk has failed, or this broker
        leads no more and the next leader may have the records or not.
        """
        try:
            await self._partition.acked(end_offset)
        except CORE_ERRORS as error:
            refused = as_api_error(error)
            if refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "Another broker has become the active controller before the change was "
                    "committed; it may have been made, so look before you try again",
                ) from error
            raise refused from error

    def fail(self, error: BaseException) -> None:
        """Takes no more records: the replica has failed. What waits for a commit ends."""
        self._partition.fail(error)

    def note_snapshots(self, snapshots: Sequence[SnapshotId]) -> None:
        """Takes which snapshots are on the disk now, the oldest first."""
        self._snapshots = list(snapshots)

    def delete_before(self, offset: int) -> None:
        """Deletes the records before `offset`, which a snapshot holds. Raises `ApiError`."""
        try:
            self._partition.advance_start(offset)
        except CORE_ERRORS as error:
            raise as_api_error(error) from error

    def read(self, offset: int) -> Iterator[tuple[int, list[MetadataRecord]]]:
        """The committed records from `offset` on, in runs, each with the offset behind it.

        Blocking. Raises `UnreadableMetadata`, `CorruptLog` and `OSError`.
        """
        start = self._partition.start_offset
        if not start <= offset <= self.committed_offset:
            raise UnreadableMetadata(
                f"the metadata log holds offsets {start} to {self.committed_offset} and is needed "
                f"from {offset} on: restore the whole directory {self.directory} from one copy"
            )
        while offset < self.committed_offset:
            found = self._partition.read(offset, max_bytes=READ_BYTES)
            if found.slice is None:
                return
            try:
                records = [decode_record(r[3]) for r in records_in(found.slice, offset)]
            except CorruptBatch as error:
                raise UnreadableMetadata(f"the metadata log is damaged: {error}") from error
            offset = found.next_offset
            yield offset, records
