"""One partition of a consumer: its position, its read-ahead, and its holds."""

from __future__ import annotations

from collections import deque
from enum import Flag, auto
from typing import NamedTuple

from millrace._consumer.read_epochs import NO_EPOCH, ReadEpochs
from millrace._consumer.read_replica import ReadReplica
from millrace.errors import MillraceError, NoCommittedOffset, again
from millrace.records import TopicPartition


class Hold(Flag):
    """Why the consumer itself hands out nothing of a partition, apart from `pause`."""

    ASSIGNED = auto()
    """It is being taken over: the user is told before the first record."""
    REVOKED = auto()
    """It is being given up."""
    OVERDUE = auto()
    """The user is too long busy with what it has."""


class Slice(NamedTuple):
    """Whole batches as they came; records before `from_offset` are not wanted.

    `next_offset` follows the last record. `data` may be a view of the frame it came in.
    """

    data: bytes | memoryview
    from_offset: int
    next_offset: int


class PartitionState:
    """One partition. `position` is the offset of the next record for the user, None until known.

    `reset` is the timestamp to look up (-2 earliest, -1 latest) while the position is not known;
    None then means that only the user can say where to begin, `no_start` why if that is no policy.
    `epochs` are those of the records before `fetch_offset`. Under leaders up to `valid_epoch` the
    log is known to have these records.
    `hot`: the next fetch may find something at once. `error` is raised to the user; `last_error`
    is why the partition was not read last, and is tried again until it is None.
    """

    __slots__ = (
        "attempts",
        "buffered_bytes",
        "denials",
        "epochs",
        "error",
        "fetch_offset",
        "high_watermark",
        "holds",
        "hot",
        "in_flight",
        "last_error",
        "no_start",
        "paused",
        "position",
        "replica",
        "reset",
        "retry_at_ms",
        "slices",
        "valid_epoch",
        "version",
        "where",
    )

    def __init__(self, where: TopicPartition) -> None:
        self.where = where
        self.position: int | None = None
        self.fetch_offset = -1
        self.reset: int | None = None
        self.no_start: MillraceError | None = None
        self.paused = False
        self.holds = Hold(0)
        self.hot = True
        self.in_flight = False
        self.version = 0
        self.epochs = ReadEpochs()
        self.valid_epoch = NO_EPOCH
        self.replica = ReadReplica()
        self.slices: deque[Slice] = deque()
        self.buffered_bytes = 0
        self.high_watermark: int | None = None
        self.error: MillraceError | None = None
        self.last_error: MillraceError | None = None
        self.retry_at_ms = 0
        self.attempts = 0
        self.denials = 0

    def must_validate(self, leader_epoch: int) -> bool:
        """Whether a leader of that epoch is to be asked for what was read, before a fetch."""
        return leader_epoch > self.valid_epoch and self.epochs.before(self.fetch_offset) != NO_EPOCH


def error_without_start(state: PartitionState) -> MillraceError:
    """The error of a partition without a position and without a reset policy."""
    if state.no_start is not None:
        return again(state.no_start)
    return NoCommittedOffset(
        f"{state.where}: the group has committed no offset, and auto_offset_reset is 'error': "
        "seek to where it should begin, or choose 'earliest' or 'latest'"
    )
