"""A backup made into a data directory.

Owns the target: that it is empty before, and empty again after an error. What a data directory
holds is `millrace_server.restored_directory`'s, and the checks of the records are `contents`'.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from millrace_cli.backup.contents import OnBytes, read_batches
from millrace_cli.backup.manifest import Backup, BackupTopic
from millrace_cli.exits import CommandError, InputError
from millrace_protocol.records import CorruptBatch
from millrace_server.api_error import ApiError
from millrace_server.disk.os_disk import DiskError, OsDisk
from millrace_server.log.errors import UnexpectedBatch
from millrace_server.restored_directory import DirectoryWriter, RestoredPartition, RestoredTopic

MIN_ISR = "min.insync.replicas"
SPACE_RATIO = 1.05
"""A data directory takes a little more than the records: indexes and the small files of a log."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a broker will start, with its id, and topic settings that replace those saved."""

    root: Path
    node_id: int
    directory_id: UUID
    configs: Mapping[str, str]


def check_empty(root: Path) -> None:
    """Raises `CommandError` for a target that has files, and `OSError`."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise CommandError(
            f"{root} is not empty; name a new directory, because a restore replaces nothing"
        )


def restore(
    source: Path, backup: Backup, target: Target, *, now_ms: int, on_bytes: OnBytes
) -> list[str]:
    """Writes the data directory; returns what is different in it, a sentence for each topic.

    Raises `CommandError`, `InputError` and `OSError`. The target is as empty as it was then.
    """
    check_empty(target.root)
    existed = target.root.exists()
    try:
        return _write(source, backup, target, now_ms, on_bytes)
    except BaseException:
        _empty(target.root, remove=not existed)
        raise


def _write(
    source: Path, backup: Backup, target: Target, now_ms: int, on_bytes: OnBytes
) -> list[str]:
    disk = OsDisk(target.root)
    needed = int(backup.size_bytes * SPACE_RATIO)
    usable = disk.space().usable_bytes
    if 0 <= usable < needed:
        raise DiskError(
            "restore into",
            str(target.root),
            OSError(errno.ENOSPC, f"{usable} bytes are free and the backup takes about {needed}"),
        )
    writer = DirectoryWriter(
        disk, node_id=target.node_id, directory_id=target.directory_id, now_ms=now_ms
    )
    changes: list[str] = []
    for topic in backup.topics:
        configs = _configs(topic, target.configs, changes)
        partitions = [
            RestoredPartition(
                partition.start_offset,
                read_batches(source, topic.topic_id, number, partition, on_bytes),
            )
            for number, partition in enumerate(topic.partitions)
        ]
        try:
            writer.write_topic(RestoredTopic(topic.name, topic.topic_id, configs, partitions))
        except ApiError as error:
            raise CommandError(f"topic {topic.name}: {error.message}") from error
        except (CorruptBatch, UnexpectedBatch) as error:
            raise InputError(f"the backup of topic {topic.name} is damaged: {error}") from error
    writer.finish()
    return changes


def _configs(
    topic: BackupTopic, replaced: Mapping[str, str], changes: list[str]
) -> Mapping[str, str]:
    """The settings of a topic; one broker cannot have two replicas in sync."""
    configs = {**topic.configs, **replaced}
    if int(configs.get(MIN_ISR, "1")) > 1:
        changes.append(
            f"topic {topic.name}: {MIN_ISR} was {configs[MIN_ISR]} and is not set now, because the "
            "new cluster has one broker; set it again when the topic has its replicas"
        )
        del configs[MIN_ISR]
    return configs


def _empty(root: Path, *, remove: bool) -> None:
    # What cannot be removed is met by the next restore, and no broker starts on it.
    with suppress(OSError):
        for entry in [*root.iterdir()]:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
        if remove:
            root.rmdir()
