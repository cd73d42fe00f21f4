"""Partition directories: made before a topic's record, opened at start, removed after its deletion.

That order is what the next start relies on. A topic that has a record and no directory has lost
it, and is kept offline rather than begun anew. A directory whose topic has no record is left of
a creation that was not finished, or of a deletion, and is removed; one that holds records and
was never deleted is left alone, and said.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Literal, cast

import structlog

from millrace_protocol.errors import ErrorCode
from millrace_server.host import Disk
from millrace_server.log import CorruptLog, LogConfig, PartitionLog
from millrace_server.metadata.image import ClusterImage
from millrace_server.refusal import Refused
from millrace_server.topic_config import TopicConfig

log = structlog.get_logger("millrace.storage")
IDENTITY_FILE = "partition.json"
DELETED_SUFFIX = ".deleted"


def partition_directory(topic: str, number: int) -> str:
    """Where a partition lives in the data directory."""
    return f"{topic}-{number}"


def log_config(config: TopicConfig) -> LogConfig:
    """A topic's settings as its logs take them."""
    return LogConfig(
        segment_bytes=config.number("segment.bytes"),
        segment_ms=config.number("segment.ms"),
        index_interval_bytes=config.number("index.interval.bytes"),
        retention_ms=config.number("retention.ms"),
        retention_bytes=config.number("retention.bytes"),
        max_message_bytes=config.number("max.message.bytes"),
        timestamp_type=cast(
            Literal["CreateTime", "LogAppendTime"], config.text("message.timestamp.type")
        ),
        durability=cast(Literal["fsync", "os"], config.text("durability")),
    )


def create_logs(
    disk: Disk, topic: str, topic_id: str, numbers: range, config: LogConfig
) -> dict[int, PartitionLog]:
    """New, empty, durable logs of a topic's partitions. Blocking; raises `OSError`.

    What an earlier, unfinished creation left in their place is removed first.
    """
    logs = {}
    for number in numbers:
        directory = partition_directory(topic, number)
        if disk.exists(directory):
            disk.remove_directory(directory)
        logs[number] = PartitionLog.create(disk, directory, config)
        identity = disk.open(f"{directory}/{IDENTITY_FILE}", create=True, write=True)
        identity.pwrite(json.dumps({"topic_id": topic_id}).encode(), 0)
        identity.sync()
        identity.release()
        disk.sync_directory(directory)
    disk.sync_directory("")
    return logs


def open_log(
    disk: Disk, topic: str, topic_id: str, number: int, config: LogConfig, now_ms: int
) -> PartitionLog:
    """The log of a partition, recovered. Blocking.

    Raises `Refused` when the partition cannot be served: its directory is gone, belongs to
    another topic, or is corrupt. Nothing is changed on the disk then.
    """
    directory = partition_directory(topic, number)
    found = _topic_id(disk, directory)
    if found != topic_id:
        reason = "is missing" if found is None else "belongs to another topic"
        raise _offline(topic, number, f"its directory {directory} {reason}")
    try:
        opened = PartitionLog.open(disk, directory, config, now_ms=now_ms)
    except (CorruptLog, OSError) as error:
        raise _offline(topic, number, str(error)) from error
    report = opened.recovery
    if not report.is_clean:
        log.info(
            "partition recovered",
            topic=topic,
            partition=number,
            scanned_bytes=report.scanned_bytes,
            cut_bytes=report.cut_bytes,
            end_offset=opened.end_offset,
        )
    return opened


def mark_deleted(disk: Disk, topic: str, topic_id: str, number: int) -> str:
    """Renames a partition's directory out of the way of a new topic of that name."""
    directory = partition_directory(topic, number)
    deleted = f"{directory}.{uuid.UUID(topic_id).hex}{DELETED_SUFFIX}"
    disk.rename(directory, deleted)
    return deleted


def remove_leftovers(disk: Disk, image: ClusterImage, keep: frozenset[str]) -> None:
    """Removes directories whose topics are deleted or were never finished. Blocking."""
    expected = set(keep)
    for topic in image.topics.values():
        expected.update(partition_directory(topic.name, n) for n in range(topic.partitions))
    for name in disk.list_directory(""):
        if name.endswith(DELETED_SUFFIX):
            disk.remove_directory(name)
            continue
        if name in expected or not disk.exists(f"{name}/{IDENTITY_FILE}"):
            continue
        if _topic_id(disk, name) in image.deleted or _is_empty(disk, name):
            disk.remove_directory(name)
        else:
            log.warning(
                "stray partition directory left alone: no topic has it, and it holds records",
                directory=name,
            )


def _topic_id(disk: Disk, directory: str) -> str | None:
    path = f"{directory}/{IDENTITY_FILE}"
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return str(_parsed(file.pread(file.size(), 0)).get("topic_id"))
    finally:
        file.release()


def _parsed(content: bytes) -> Mapping[str, object]:
    try:
        parsed = json.loads(content)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _is_empty(disk: Disk, directory: str) -> bool:
    try:
        opened = PartitionLog.open(disk, directory, LogConfig(), now_ms=0)
    except (CorruptLog, OSError):
        return False
    empty = opened.end_offset == 0
    opened.close()
    return empty


def _offline(topic: str, number: int, reason: str) -> Refused:
    return Refused(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"Partition {topic}-{number} is offline: {reason}; restore it, or delete the topic",
    )
