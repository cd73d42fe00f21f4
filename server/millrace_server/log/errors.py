"""What a log refuses, and what stops it: typed, with a message a person can act on.

The broker maps the expected refusals to error codes of the wire; `LogFailed` and `CorruptLog`
take the partition offline.
"""

from __future__ import annotations


class LogRefusal(Exception):
    """An expected refusal; the log is unchanged and goes on."""


class OffsetOutOfRange(LogRefusal):
    """There is nothing at `offset`: valid is `start_offset <= offset <= end_offset`."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(
            f"offset {offset} is outside the log, which reaches from {start_offset} "
            f"to {end_offset}: read from an offset in that range"
        )
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class OutOfOrderSequence(LogRefusal):
    """A batch of an idempotent producer is missing before this one, or it is too old to compare."""

    def __init__(self, producer_id: int, *, sequence: int, expected: int) -> None:
        super().__init__(
            f"producer {producer_id} sent sequence {sequence} and {expected} is next: "
            "resend from the last acknowledged batch"
        )
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected


class TimestampOutOfRange(LogRefusal):
    """A timestamp of a client is too far from the broker's clock."""

    def __init__(self, timestamp_ms: int, *, now_ms: int, setting: str) -> None:
        super().__init__(
            f"the batch has a timestamp of {timestamp_ms} ms and the broker's clock says {now_ms}: "
            f"correct the client's clock, or raise {setting} of the topic"
        )
        self.timestamp_ms = timestamp_ms


class UnexpectedBatch(LogRefusal):
    """A batch of the leader does not continue the follower's log: truncate, and fetch again."""


class FencedProducer(LogRefusal):
    """A newer epoch of the producer id has written here."""

    def __init__(self, producer_id: int, *, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"producer {producer_id} sent epoch {epoch} and epoch {current_epoch} has written: "
            "another instance writes in its place"
        )
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class UnknownProducer(LogRefusal):
    """The log holds no state of the producer id, and the batch is not its first."""

    def __init__(self, producer_id: int, *, sequence: int) -> None:
        super().__init__(
            f"producer {producer_id} sent sequence {sequence}, and the partition holds no batch of "
            "it: ask InitProducerId for a new epoch and start at sequence 0"
        )
        self.producer_id = producer_id
        self.sequence = sequence


class LogFailed(Exception):
    """The log was stopped by an error of the disk and takes no append until it is opened anew."""

    def __init__(self, directory: str, cause: BaseException) -> None:
        super().__init__(
            f"the log {directory} stopped after a disk error and takes no more appends: {cause}; "
            "check the disk, then restart the broker"
        )
        self.directory = directory
        self.cause = cause


class ReadOnlyLog(Exception):
    """The log was opened for reading alone, because its recovery could not write."""

    def __init__(self, directory: str, cause: OSError) -> None:
        super().__init__(
            f"the log {directory} is read-only, because its recovery could not write: {cause}; "
            "the broker tries again by itself"
        )
        self.directory = directory
        self.cause = cause


class LogClosed(Exception):
    """The log was closed; its owner must not use it any more."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"the log {directory} is closed: open it again to use it")
        self.directory = directory


class CorruptLog(Exception):
    """Bytes that were durable are missing or changed. Nothing was cut.

    Met at the start, it takes the partition offline. `offset` is that of the record which was
    written at `position`, -1 where that is not known.
    """

    def __init__(self, path: str, position: int, message: str, *, offset: int = -1) -> None:
        super().__init__(
            f"{path} at byte {position}: {message}; nothing was changed. Restore the partition "
            "from a replica or a backup"
        )
        self.path = path
        self.position = position
        self.message = message
        self.offset = offset
