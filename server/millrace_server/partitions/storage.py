"""Partition directories: created, opened and removed as `controller.applier` asks for it.

A directory without a topic is left of a creation that did not end, or of a deletion, and is
removed; one that holds records and was never deleted is left alone, and logged.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import Codec
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Disk
from millrace_server.log import CorruptLog, LogConfig, PartitionLog
from millrace_server.log.checkpoint_file import read_file, replace_file
from millrace_server.log.segment import LOG_SUFFIX
from millrace_server.logs import get_logger
from millrace_server.metadata.image import ClusterImage
from millrace_server.topic_config import TopicConfig

log = get_logger("millrace.storage")
IDENTITY_FILE = "partition.json"
DELETED_SUFFIX = ".deleted"
_CHECKPOINT_FILE = "checkpoint"
_NAME_SHOWN_SIZE = 150
"""Characters of its name that a deleted directory keeps; 255 bytes is all that a name may have."""


class Identity(NamedTuple):
    """The partition that a directory belongs to, as its `partition.json` says.

    `number` is None in a file of an earlier version; such a file is completed when it is read.
    """

    topic_id: str
    number: int | None


CODECS: Mapping[str, Codec | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""By the words of `compression.type`."""


def partition_directory(topic: str, number: int) -> str:
    """Where a partition lives in the data directory."""
    return f"{topic}-{number}"


def log_config(config: TopicConfig) -> LogConfig:
    """A topic's settings as its logs take them."""
    policies = config.words("cleanup.policy")
    return LogConfig(
        segment_bytes=config.number("segment.bytes"),
        segment_ms=config.number("segment.ms"),
        index_interval_bytes=config.number("index.interval.bytes"),
        retention_ms=config.number("retention.ms"),
        retention_bytes=config.number("retention.bytes"),
        max_message_bytes=config.number("max.message.bytes"),
        codec=CODECS[config.text("compression.type")],
        timestamp_type=cast(
            Literal["CreateTime", "LogAppendTime"], config.text("message.timestamp.type")
        ),
        timestamp_before_max_ms=config.number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=config.number("message.timestamp.after.max.ms"),
        durability=cast(Literal["fsync", "os"], config.text("durability")),
        deletes="delete" in policies,
        compacts="compact" in policies,
        min_cleanable_dirty_ratio=config.share("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=config.number("min.compaction.lag.ms"),
        # A new default of the broker may lie below what a topic was made with.
        max_compaction_lag_ms=max(
            config.number("min.compaction.lag.ms"), config.number("max.compaction.lag.ms")
        ),
        delete_retention_ms=config.number("delete.retention.ms"),
    )


def create_logs(
    disk: Disk,
    image: ClusterImage,
    topic: str,
    topic_id: str,
    numbers: Iterable[int],
    config: LogConfig,
) -> dict[int, PartitionLog]:
    """New, empty, durable logs of a topic's partitions. Blocking.

    What an earlier, unfinished creation or deletion left in their place is removed first. Raises
    `OSError`, and `ApiError` when the place is taken by records that were never deleted; all that
    was made is gone again then.
    """
    logs: dict[int, PartitionLog] = {}
    unfinished: str | None = None
    try:
        for number in numbers:
            directory = partition_directory(topic, number)
            if disk.exists(directory):
                _clear(disk, image, directory, Identity(topic_id, number))
            unfinished = directory
            logs[number] = PartitionLog.create(disk, directory, config, sync_parent=False)
            write_identity(disk, directory, Identity(topic_id, number))
        disk.sync_directory("")
    except (OSError, ApiError):
        drop_logs(disk, topic, logs)
        if unfinished is not None and disk.exists(unfinished):
            _remove(disk, [unfinished])
        raise
    return logs


def drop_logs(disk: Disk, topic: str, logs: Mapping[int, PartitionLog]) -> None:
    """Takes back what `create_logs` made. Blocking; what cannot be removed is left to a start."""
    for made in logs.values():
        made.discard()
    for number in logs:
        _remove(disk, [partition_directory(topic, number)])


def _clear(disk: Disk, image: ClusterImage, directory: str, identity: Identity) -> None:
    """Makes way for a new replica. Raises `ApiError` rather than lose records.

    One of the same partition is left of a replica that was removed from this broker before.
    """
    is_earlier = read_identity(disk, directory) == identity
    if not is_earlier and not _may_go(disk, image, directory):
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The data directory has a directory {directory} with records that no topic owns; "
            "move it away, or choose another topic name",
        )
    _remove(disk, [directory])


def _may_go(disk: Disk, image: ClusterImage, directory: str) -> bool:
    """Whether a directory without a topic is left of a deletion or of an unfinished creation."""
    return _is_removed(_topic_id(disk, directory), image) or _is_empty(disk, directory)


def _is_removed(topic_id: str | None, image: ClusterImage) -> bool:
    try:
        return topic_id is not None and uuid.UUID(topic_id) in image.removed
    except ValueError:
        return False


def write_identity(disk: Disk, directory: str, identity: Identity) -> None:
    """Replaces the file atomically. It is the last step of a creation, and says that it ended."""
    content = {"topic_id": identity.topic_id, "partition": identity.number}
    replace_file(disk, f"{directory}/{IDENTITY_FILE}", json.dumps(content).encode())


def open_log(
    disk: Disk, topic: str, topic_id: str, number: int, config: LogConfig, now_ms: int
) -> PartitionLog:
    """The log of a partition, recovered. Blocking.

    Where the disk does not let recovery write, the log is read-only. Raises `ApiError` when only a
    person can mend the partition: its directory is gone, belongs to another partition, or is
    corrupt. Nothing is changed on the disk then. Raises `OSError` when it cannot be read for a
    reason that may pass.
    """
    directory = partition_directory(topic, number)
    _check_identity(disk, directory, topic_id, topic, number)
    try:
        try:
            opened = PartitionLog.open(disk, directory, config, now_ms=now_ms)
            _complete_identity(disk, directory, opened, Identity(topic_id, number))
        except OSError as cause:
            return PartitionLog.open_read_only(disk, directory, config, now_ms=now_ms, cause=cause)
    except CorruptLog as error:
        raise _offline(topic, number, str(error)) from error
    report = opened.recovery
    if not report.has_checkpoint:
        # No crash destroys a checkpoint. A segment before the first one that is there, or behind
        # the last, may be missing with it, and nothing on the disk could tell.
        log.warning(
            "the checkpoint is missing or broken, and the whole log was read; compare the offsets "
            "with a copy",
            topic=topic,
            partition=number,
            start_offset=opened.start_offset,
            end_offset=opened.end_offset,
        )
    for name in report.set_aside:
        log.warning(
            "a segment that does not continue the log is set aside; remove it, or restore what "
            "comes before it",
            topic=topic,
            partition=number,
            path=name,
            end_offset=opened.end_offset,
        )
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


def open_or_create_log(
    disk: Disk,
    image: ClusterImage,
    topic: str,
    topic_id: str,
    number: int,
    config: LogConfig,
    now_ms: int,
) -> PartitionLog:
    """The log of a partition whose creation may have ended or not. Blocking.

    Raises what `open_log` and `create_logs` raise.
    """
    if read_identity(disk, partition_directory(topic, number)) == Identity(topic_id, number):
        return open_log(disk, topic, topic_id, number, config, now_ms)
    return create_logs(disk, image, topic, topic_id, (number,), config)[number]


def _check_identity(disk: Disk, directory: str, topic_id: str, topic: str, number: int) -> None:
    """Raises `ApiError` unless the directory is that of the partition, and `OSError`."""
    found = read_identity(disk, directory)
    if found is None:
        raise _offline(
            topic,
            number,
            f"its directory {directory} is missing, or is not that of a partition; restore the "
            "directory from a copy and restart the broker, or delete the topic",
        )
    if found.topic_id != topic_id or found.number not in (number, None):
        of = "" if found.number is None else f", partition {found.number}"
        raise _offline(
            topic,
            number,
            f"its directory {directory} holds another one (topic id {found.topic_id}{of}); "
            "stop the broker and move each directory back to its own name",
        )


def _complete_identity(
    disk: Disk, directory: str, opened: PartitionLog, identity: Identity
) -> None:
    """Writes the number into an identity that has none. Raises `OSError`; the log is let go."""
    if read_identity(disk, directory) == identity:
        return
    try:
        write_identity(disk, directory, identity)
    except OSError:
        opened.discard()
        raise


def remove_partitions(disk: Disk, topic: str, topic_id: str, numbers: Sequence[int]) -> None:
    """Removes the directories of partitions that are deleted, or moved to other brokers. Blocking.

    One that cannot be removed now is met again at the next start, or when its place is needed.
    """
    directories = [partition_directory(topic, number) for number in numbers]
    try:
        owned = [d for d in directories if _topic_id(disk, d) == topic_id]
    except OSError as error:
        log.warning("deleted partitions are still on the disk", error=str(error))
    else:
        _remove(disk, owned)


def remove_leftovers(
    disk: Disk, image: ClusterImage, keep: frozenset[str], *, broker_id: int
) -> None:
    """Removes directories of partitions that are deleted, moved or were never finished. Blocking.

    The image has the registration of this start, so that what it says of replicas is not older.
    """
    expected, moved = set(keep), dict[str, Identity]()
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            directory = partition_directory(topic.name, number)
            if broker_id in partition.replicas:
                expected.add(directory)
            else:
                moved[directory] = Identity(str(topic.topic_id), number)
    leftovers = []
    for name in disk.list_directory(""):
        if name in expected:
            continue
        try:
            if name.endswith(DELETED_SUFFIX):
                leftovers.append(name)
            elif not is_partition(disk, name):
                continue
            elif _may_go(disk, image, name) or (
                name in moved and read_identity(disk, name) == moved[name]
            ):
                leftovers.append(name)
            else:
                log.warning(
                    "stray partition directory left alone: no topic has it, and it holds records",
                    directory=name,
                )
        except OSError as error:
            log.warning("directory left alone", directory=name, error=str(error))
    _remove(disk, leftovers)


def _remove(disk: Disk, directories: Sequence[str]) -> None:
    """Removes directories; under another name first, durably.

    A power cut in the midst of it leaves half a directory, which must not be taken for a
    partition, nor stand in the way of a new topic of that name.
    """
    try:
        renamed = []
        for directory in directories:
            name = directory
            if not name.endswith(DELETED_SUFFIX):
                topic_id = "".join(filter(str.isalnum, _topic_id(disk, directory) or "none"))
                name = (
                    f"{directory[:_NAME_SHOWN_SIZE]}.{directory[-5:]}.{topic_id[:32]}"
                    f"{DELETED_SUFFIX}"
                )
                disk.rename(directory, name)
            renamed.append(name)
        if renamed != list(directories):
            disk.sync_directory("")
        for name in renamed:
            disk.remove_directory(name)
    except OSError as error:
        log.warning("deleted partitions are still on the disk", error=str(error))


def is_partition(disk: Disk, directory: str) -> bool:
    """Whether a directory is a partition's, finished or not, and not about to be removed."""
    return not directory.endswith(DELETED_SUFFIX) and any(
        disk.exists(f"{directory}/{name}") for name in (IDENTITY_FILE, _CHECKPOINT_FILE)
    )


def read_identity(disk: Disk, directory: str) -> Identity | None:
    """The identity of a directory, None if it has none. Raises `OSError`."""
    data = read_file(disk, f"{directory}/{IDENTITY_FILE}")
    if data is None:
        return None
    content = _parsed(data)
    number = content.get("partition")
    return Identity(str(content.get("topic_id")), number if isinstance(number, int) else None)


def _topic_id(disk: Disk, directory: str) -> str | None:
    identity = read_identity(disk, directory)
    return None if identity is None else identity.topic_id


def _parsed(content: bytes) -> Mapping[str, object]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _is_empty(disk: Disk, directory: str) -> bool:
    # Records are in segments. A creation or removal that was cut short may have left other files
    # without one, which does not open as a log.
    if not any(name.endswith(LOG_SUFFIX) for name in disk.list_directory(directory)):
        return True
    try:
        opened = PartitionLog.open(disk, directory, LogConfig(), now_ms=0)
    except (CorruptLog, OSError):
        return False
    empty = opened.end_offset == 0
    opened.close()
    return empty


def _offline(topic: str, number: int, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"Partition {topic}-{number} is offline: {reason}",
    )
