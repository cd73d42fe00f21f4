"""DescribeLogDirs: the data directories of a broker, and what each partition takes in them."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class DescribeLogDirsRequest(Request):
    """Asks a broker for its data directories."""

    topics: tuple[str, ...] | None = wire(
        array_of(STRING, nullable=True), "topic names; null for all topics, empty for none"
    )


@message
class LogDirPartition(Message):
    """One partition in a directory."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    size_bytes: int = wire(INT64, "size of all its batches; -1 on error", unit="bytes")
    offset_lag: int = wire(
        INT64, "offsets that its log is behind the high watermark; 0 on a leader, -1 on error"
    )


@message
class LogDir(Message):
    """One data directory."""

    path: str = wire(STRING, "absolute path on the broker's machine")
    error_code: int = wire(INT16, "error of the directory (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    total_bytes: int = wire(INT64, "size of its file system; -1 if unknown", unit="bytes")
    usable_bytes: int = wire(
        INT64, "free space that the broker may use there; -1 if unknown", unit="bytes"
    )
    partitions: tuple[LogDirPartition, ...] = wire(
        array_of(LogDirPartition), "the partitions it holds, by topic and number"
    )


@message
class DescribeLogDirsResponse(Message):
    """The directories of the broker that was asked."""

    node_id: int = wire(INT32, "the broker's id in the metadata")
    log_dirs: tuple[LogDir, ...] = wire(array_of(LogDir), "every data directory")
