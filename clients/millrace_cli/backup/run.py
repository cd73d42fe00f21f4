"""One run of a backup: from the questions to the cluster to the manifest.

Owns the order of the steps and what the run did in numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.admin import Admin
from millrace.consumer import Consumer
from millrace.errors import NotAuthorized
from millrace.records import TopicPartition
from millrace_cli.backup.directory import BackupDirectory, PartitionFiles
from millrace_cli.backup.manifest import (
    FILES_MAX,
    Backup,
    BackupTopic,
)
from millrace_cli.backup.plan import plan_copy
from millrace_cli.backup.record_copy import (
    BUFFER_BYTES,
    FETCH_BYTES,
    PartitionCopy,
    RecordCopy,
)
from millrace_cli.backup.sources import SourceTopic, find_topics, hidden_topics
from millrace_cli.exits import CommandError


@dataclass(slots=True)
class RunCounts:
    """What a run has read so far, and about how much there is to read."""

    read_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunResult:
    """The backup after a run, and what the run added to it."""

    backup: Backup
    copied_bytes: int
    copied_files: int
    deleted_topics: tuple[str, ...]
    """Topics that were deleted during the run, and are not in the backup."""
    hidden_topics: tuple[NotAuthorized, ...]
    """Of each topic that the client may not see, and which is not in the backup; as far as the
    client may know of them."""


async def take_backup(
    root: Path,
    servers: str,
    *,
    settings: Mapping[str, Any],
    timeout_s: float,
    wall_ms: Callable[[], int],
    counts: RunCounts,
) -> RunResult:
    """Brings the backup in `root` up to what the cluster has now. The directory is locked.

    Raises `InputError`, `CommandError`, `BrokerUnavailable`, `MillraceError` and `OSError`; the
    backup is as it was then.
    """
    directory = BackupDirectory(root)
    before = directory.read_before()
    directory.remove_others(before)
    began_ms, run = wall_ms(), 1 if before is None else before.run + 1
    try:
        async with Admin(servers, **settings) as admin:
            cluster_id = (await admin.describe_cluster()).cluster_id
            topics = await find_topics(admin, before)
            hidden = await hidden_topics(admin, {topic.description.name for topic in topics})
            copies = [_copies(root, topic, before, run, began_ms) for topic in topics]
            counts.total_bytes = sum(c.planned_bytes for each in copies for c in each)
            deleted = await _copy(admin, servers, settings, topics, copies, timeout_s, counts)
        kept = [
            (topic, each)
            for topic, each in zip(topics, copies, strict=True)
            if topic.description.name not in deleted
        ]
        backup = Backup(
            run, str(cluster_id), began_ms, wall_ms(), tuple(_saved(t, each) for t, each in kept)
        )
        if backup.file_count > FILES_MAX:
            raise CommandError(
                f"the backup would have {backup.file_count} files of at most {FILES_MAX}; "
                "begin another directory"
            )
        new = [copy for _, each in kept for copy in each]
        await asyncio.to_thread(_sync, directory, new, backup)
    except BaseException:
        directory.remove_others(before)
        raise
    directory.remove_others(backup)
    return RunResult(
        backup,
        sum(file.size_bytes for copy in new for file in copy.files.files),
        sum(len(copy.files.files) for copy in new),
        tuple(sorted(deleted)),
        tuple(hidden),
    )


async def _copy(
    admin: Admin,
    servers: str,
    settings: Mapping[str, Any],
    topics: Sequence[SourceTopic],
    copies: Sequence[Sequence[PartitionCopy]],
    timeout_s: float,
    counts: RunCounts,
) -> set[str]:
    """Copies the records; returns the topics that were deleted meanwhile."""

    def on_bytes(size: int) -> None:
        counts.read_bytes += size

    consumer: Consumer[bytes, bytes] = Consumer(
        servers,
        max_partition_bytes=FETCH_BYTES,
        buffer_bytes=BUFFER_BYTES,
        on_out_of_range="earliest",
        **settings,
    )
    async with consumer:
        copy = RecordCopy(
            admin,
            consumer,
            {topic.description.name: topic.description.topic_id for topic in topics},
            [copy for each in copies for copy in each],
            timeout_s=timeout_s,
            on_bytes=on_bytes,
        )
        await copy.run()
    return copy.deleted


def _copies(
    root: Path, topic: SourceTopic, before: Backup | None, run: int, now_ms: int
) -> list[PartitionCopy]:
    name, topic_id = topic.description.name, topic.description.topic_id
    saved = None if before is None else before.topic_of(topic_id)
    partitions = () if saved is None else saved.partitions
    copies = []
    for number, log in enumerate(topic.logs):
        plan = plan_copy(
            log,
            partitions[number] if number < len(partitions) else None,
            before_ms=0 if before is None else before.began_ms,
            now_ms=now_ms,
        )
        files = PartitionFiles(root, topic_id, number, run=run, file_bytes=topic.segment_bytes)
        copies.append(PartitionCopy(TopicPartition(name, number), log, plan, files))
    return copies


def _saved(topic: SourceTopic, copies: Sequence[PartitionCopy]) -> BackupTopic:
    described = topic.description
    return BackupTopic(
        described.name,
        described.topic_id,
        max((len(p.replicas) for p in described.partitions), default=1),
        topic.configs,
        tuple(copy.result() for copy in copies),
    )


def _sync(directory: BackupDirectory, copies: Sequence[PartitionCopy], backup: Backup) -> None:
    for copy in copies:
        copy.files.sync()
    directory.replace(backup)
