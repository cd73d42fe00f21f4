"""What a log is in memory: its segments, producers and epochs, and where it begins and ends.

Shared by the parts of one log, on its event loop: `partition_log` appends, `reader` reads,
`durability` writes down, `truncation` and `compaction.cleaner` replace. Refuses to know what of it
is on the disk.

    start_offset <= end_offset
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.environment.seams import Disk
from millrace_server.log.chain import SegmentChain
from millrace_server.log.cleanliness import NOT_CLEAN, Cleanliness
from millrace_server.log.config import LogConfig
from millrace_server.log.epochs import FIRST_EPOCH, EpochEnd, EpochTable
from millrace_server.log.errors import LogClosed, LogFailed, ReadOnlyLog
from millrace_server.log.producers import Producers
from millrace_server.log.recovered import Recovered


@dataclass(slots=True)
class LogState:
    """Running until `fail` or the end; a log that has failed can still be read."""

    disk: Disk
    directory: str
    config: LogConfig
    chain: SegmentChain
    producers: Producers
    epochs: EpochTable
    start_offset: int
    end_offset: int
    cleanliness: Cleanliness
    failure: BaseException | None = None
    is_closed: bool = False

    @classmethod
    def of(cls, disk: Disk, directory: str, config: LogConfig, recovered: Recovered) -> LogState:
        """The state of a log as it was found."""
        chain = SegmentChain(recovered.segments, settled_count=recovered.settled_count)
        return cls(
            disk,
            directory,
            config,
            chain,
            recovered.producers,
            recovered.epochs,
            recovered.start_offset,
            chain.active.end_offset,
            recovered.cleanliness,
        )

    @property
    def takes_changes(self) -> bool:
        """Whether the log has neither failed nor been closed."""
        return self.failure is None and not self.is_closed

    def check_changes(self) -> None:
        """Raises `stopped` unless the log takes changes."""
        if not self.takes_changes:
            raise self.stopped()

    def fail(self, error: BaseException) -> None:
        """Stops the log; the first error is the one that is reported."""
        if self.failure is None:
            self.failure = error

    def stopped(self) -> LogFailed | LogClosed | ReadOnlyLog:
        """The error of a call that a log which has failed or was closed does not take."""
        if isinstance(self.failure, ReadOnlyLog) and not self.is_closed:
            return ReadOnlyLog(self.directory, self.failure.cause)
        if self.failure is not None:
            return LogFailed(self.directory, self.failure)
        return LogClosed(self.directory)

    def begin_epoch(self, epoch: int) -> None:
        """Begins the epoch of a new leader at the end of the log.

        The leader may serve once a flush has moved `durable_epoch` there (KAFKA-7415). Raises
        `ValueError` if the epoch is older than the log's.
        """
        self.epochs = self.epochs.begin(epoch, self.end_offset)

    def forget_unused_epochs(self, *, is_anew: bool) -> bool:
        """Forgets the epochs in which no record was written; False if there is none.

        A leader may send records of an older epoch than one that this replica began and in which it
        wrote nothing. Before they are appended a flush has made the table durable: recovery would
        count them to the epoch that was begun. A log that begins anew forgets all its epochs.
        """
        used = EpochTable() if is_anew else self.epochs.truncate_to(self.end_offset)
        used = used if used.entries else FIRST_EPOCH
        if used == self.epochs:
            return False
        self.epochs = used
        return True

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """See `PartitionLog.end_offset_for_epoch`."""
        epochs = self.epochs.trim_to(self.start_offset)
        return epochs.end_offset_for(epoch, log_end=self.end_offset)

    def begin_anew(self, offset: int) -> None:
        """Takes the log as empty, with `offset` as start and end."""
        self.start_offset = self.end_offset = offset
        self.producers = Producers()
        self.cleanliness = NOT_CLEAN
        epochs = self.epochs.truncate_to(offset)
        self.epochs = epochs if epochs.entries else FIRST_EPOCH

    def move_start(self, offset: int) -> None:
        """Begins the log at `offset`, or where it begins already if that is behind it.

        The epochs before the start stay in the table until the start is durable: a crash may bring
        their records back.
        """
        self.start_offset = max(self.start_offset, offset)
