"""The directory of a backup: its lock, its manifest, and the files that a run adds to it.

Owns the order that makes a run atomic: the new files are durable, then the manifest is replaced,
then the files that it names no more are removed. A run that ends before that leaves the backup as
it was, and files that the next run removes. Files are never changed once a manifest names them, so
hard links of a directory (`cp -al`) are a backup of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import crc32c

from millrace_cli.backup.manifest import (
    MANIFEST_NAME,
    Backup,
    BackupFile,
    decode_manifest,
    encode_manifest,
    file_name,
    file_path,
    partition_path,
)
from millrace_cli.exits import InputError
from millrace_server.disk.lock import LOCK_NAME, DirectoryLock
from millrace_server.disk.os_disk import DIRECTORY_MODE, FILE_MODE, OsDisk
from millrace_server.log.checkpoint_file import TEMPORARY_SUFFIX, replace_file

_TEMPORARY_NAME = MANIFEST_NAME + TEMPORARY_SUFFIX


class BackupDirectory:
    """One directory with a backup, or with none yet."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self) -> Backup:
        """The backup. Raises `InputError` if there is none that can be read, and `OSError`."""
        path = self.root / MANIFEST_NAME
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"{self.root} has no {MANIFEST_NAME}: it is not a backup") from None
        return decode_manifest(data, str(path))

    def read_before(self) -> Backup | None:
        """The backup of the run before, None for a new directory.

        Raises `InputError` for a directory with other files, and `OSError`.
        """
        if not (self.root / MANIFEST_NAME).exists():
            foreign = sorted(
                entry.name
                for entry in self.root.iterdir()
                if entry.name not in (LOCK_NAME, "topics", _TEMPORARY_NAME)
            )
            if foreign:
                raise InputError(
                    f"{self.root} has {foreign[0]} and no {MANIFEST_NAME}; "
                    "name a new directory, or one with a backup"
                )
            return None
        return self.read()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory and keeps other runs out. Raises `DataDirectoryLocked`, `OSError`."""
        self.root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        lock = DirectoryLock(self.root)
        try:
            yield
        finally:
            lock.release()

    def replace(self, backup: Backup) -> None:
        """Makes a backup the one of this directory, durably. Raises `OSError`."""
        replace_file(OsDisk(self.root), MANIFEST_NAME, encode_manifest(backup))

    def remove_others(self, backup: Backup | None) -> None:
        """Removes the files of records that the backup does not name. Raises `OSError`."""
        named = {
            file_path(topic.topic_id, number, file)
            for topic in (backup.topics if backup else ())
            for number, partition in enumerate(topic.partitions)
            for file in partition.files
        }
        for parent, directories, files in os.walk(self.root / "topics", topdown=False):
            for name in files:
                path = Path(parent, name)
                if str(path.relative_to(self.root)) not in named:
                    path.unlink()
            for name in directories:
                directory = Path(parent, name)
                if not any(directory.iterdir()):
                    directory.rmdir()


class PartitionFiles:
    """The new files of one partition, each of at most `file_bytes` and one batch.

    A file is open during a write alone, so that thousands of partitions take no descriptors.
    """

    def __init__(
        self, root: Path, topic_id: UUID, number: int, *, run: int, file_bytes: int
    ) -> None:
        self._root = root
        self._path = partition_path(topic_id, number)
        self._directory = root / self._path
        self._run = run
        self._file_bytes = file_bytes
        self.files: list[BackupFile] = []
        """What was written, in order."""

    def write(self, batches: memoryview, *, start_offset: int, end_offset: int) -> None:
        """Appends whole batches with the offsets `[start_offset, end_offset)`. `OSError`."""
        if not self.files or self.files[-1].size_bytes >= self._file_bytes:
            self._directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self.files.append(BackupFile(start_offset, start_offset, 0, 0, self._run))
        last = self.files[-1]
        path = self._directory / file_name(last.start_offset, self._run)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(os.open(path, flags, FILE_MODE), "wb", buffering=0) as file:
            written = 0
            while written < len(batches):
                written += file.write(batches[written:])
        self.files[-1] = BackupFile(
            last.start_offset,
            end_offset,
            last.size_bytes + len(batches),
            crc32c.crc32c(batches, last.crc32c),
            self._run,
        )

    def remove(self) -> None:
        """Removes what was written. Raises `OSError`."""
        for file in self.files:
            (self._directory / file_name(file.start_offset, self._run)).unlink()
        self.files.clear()

    def sync(self) -> None:
        """Makes the files durable, with their names. Raises `OSError`."""
        if not self.files:
            return
        disk = OsDisk(self._root)
        for file in self.files:
            written = disk.open(f"{self._path}/{file_name(file.start_offset, self._run)}")
            try:
                written.sync()
            finally:
                written.release()
        parts = self._path.split("/")
        for depth in range(len(parts), -1, -1):
            disk.sync_directory("/".join(parts[:depth]))
