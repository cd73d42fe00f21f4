"""DescribeLogDirs (35): data directories, and what partitions take in them."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, INT16, INT32, INT64, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class DescribableLogDirTopic(Message):
    """A topic."""

    topic: str = wire(STRING, "name of the topic")
    partitions: tuple[int, ...] = wire(array_of(INT32), "numbers of the partitions")


@message
class DescribeLogDirsRequest(KafkaRequest):
    """Asks for the directories of this broker."""

    flexible_since: ClassVar[int | None] = 2

    topics: tuple[DescribableLogDirTopic, ...] | None = wire(
        array_of(DescribableLogDirTopic, nullable=True), "the topics; null: all"
    )


@message
class DescribeLogDirsPartition(Message):
    """A partition and what it takes."""

    partition_index: int = wire(INT32, "number of the partition")
    partition_size: int = wire(INT64, "size of its segments", unit="bytes")
    offset_lag: int = wire(INT64, "how far its log is behind the high watermark")
    is_future_key: bool = wire(BOOLEAN, "whether it moves to this directory", default=False)


@message
class DescribeLogDirsTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[DescribeLogDirsPartition, ...] = wire(
        array_of(DescribeLogDirsPartition), "its partitions"
    )


@message
class DescribeLogDirsResult(Message):
    """A directory."""

    error_code: int = wire(INT16, "error of the directory")
    log_dir: str = wire(STRING, "path of the directory")
    topics: tuple[DescribeLogDirsTopic, ...] = wire(
        array_of(DescribeLogDirsTopic), "what it holds", default=()
    )
    total_bytes: int = wire(
        INT64, "size of its volume; -1: unknown", unit="bytes", since=4, default=-1
    )
    usable_bytes: int = wire(
        INT64, "what is free there; -1: unknown", unit="bytes", since=4, default=-1
    )
    is_cordoned: bool = wire(BOOLEAN, "whether it takes no new partitions", since=5, default=False)


@message
class DescribeLogDirsResponse(Message):
    """The directories."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    error_code: int = wire(INT16, "error of the request", since=3, default=0)
    results: tuple[DescribeLogDirsResult, ...] = wire(
        array_of(DescribeLogDirsResult), "the directories", default=()
    )
