"""Backups and restores as a test takes them: by the functions behind the commands."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace_cli.backup.contents import verify
from millrace_cli.backup.directory import BackupDirectory
from millrace_cli.backup.manifest import Backup
from millrace_cli.backup.restoration import Target, restore
from millrace_cli.backup.run import RunCounts, RunResult, take_backup


def wall_ms() -> int:
    """The time of this machine."""
    return time.time_ns() // 1_000_000


async def backed_up(
    root: Path,
    servers: str,
    *,
    now_ms: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> RunResult:
    """Takes a backup and checks every byte of it; `now_ms` stands for the time, if given."""
    with BackupDirectory(root).locked():
        result = await take_backup(
            root,
            servers,
            settings=settings or {},
            timeout_s=60,
            wall_ms=wall_ms if now_ms is None else lambda: now_ms,
            counts=RunCounts(),
        )
    await asyncio.to_thread(verify, root, BackupDirectory(root).read(), _ignore)
    return result


async def restored(root: Path, data: Path, *, configs: Mapping[str, str] | None = None) -> Backup:
    """Makes a data directory of a backup, for a broker of id 0."""
    found = BackupDirectory(root).read()
    target = Target(data, 0, uuid.uuid4(), configs or {})
    await asyncio.to_thread(restore, root, found, target, now_ms=wall_ms(), on_bytes=_ignore)
    return found


def ends(backup: Backup) -> dict[str, int]:
    """The end offset of each partition, by `topic-partition`."""
    return {
        f"{topic.name}-{number}": partition.end_offset
        for topic in backup.topics
        for number, partition in enumerate(topic.partitions)
    }


def file_bytes(root: Path) -> dict[str, bytes]:
    """The files with records, by their paths."""
    paths = (root / "topics").rglob("*.log")
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def _ignore(_: int) -> None:
    pass
