"""A broker in the event loop of a test that can end as a process does, and whose disk can be full.

Owns the disk and the tasks of such a broker. When a process is killed, its code runs no more, the
kernel closes its connections, and what it has written stays. In one process with other code that
is done in this order:

    1. the disk takes nothing more, and every connection is aborted, in one step of the event loop
    2. the tasks are cancelled, and what is left of the broker is taken apart

In the second part, code of the broker still runs: `finally` blocks, and worker threads in the midst
of a sequence of writes. It finds a disk on which all writes succeed and leave nothing, and no
connection, so nothing outside can tell that it has run.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from millrace_server.disk.os_disk import OsDisk, OsFile
from millrace_server.environment.seams import DiskSpace, File, ReadBuffer
from millrace_server.machine import LoopSpawn

T = TypeVar("T")
CANCEL_AGAIN_S = 0.1
"""A task that waits for a worker thread may take a cancellation for the end of that wait."""


class EndableDisk:
    """A data directory on which nothing changes any more from the moment of `end`. See `Disk`.

    While `is_full` returns true, whatever takes room fails.
    """

    def __init__(self, root: Path, is_full: Callable[[], bool]) -> None:
        self._disk = OsDisk(root)
        self._is_full = is_full
        self.has_ended = False

    def take_room(self) -> None:
        """Raises `OSError` while the disk is full."""
        if self._is_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def end(self) -> None:
        """The process is gone: what is written from now on leaves nothing."""
        self.has_ended = True

    @property
    def path(self) -> str:
        return self._disk.path

    def space(self) -> DiskSpace:
        return self._disk.space()

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        if self.has_ended and create:
            return EndableFile(OsFile(path, os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)), self)
        if create:
            self.take_room()
        return EndableFile(self._disk.open(path, create=create, write=write), self)

    def list_directory(self, path: str) -> list[str]:
        return self._disk.list_directory(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def make_directory(self, path: str) -> None:
        if not self.has_ended:
            self.take_room()
            self._disk.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        if not self.has_ended:
            self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        if not self.has_ended:
            self._disk.remove(path)

    def remove_directory(self, path: str) -> None:
        if not self.has_ended:
            self._disk.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        if not self.has_ended:
            self._disk.sync_directory(path)


class EndableFile:
    """A file of an `EndableDisk`. See `File`."""

    __slots__ = ("_disk", "_file")

    def __init__(self, file: OsFile, disk: EndableDisk) -> None:
        self._file = file
        self._disk = disk

    @property
    def path(self) -> str:
        return self._file.path

    def fileno(self) -> int:
        return self._file.fileno()

    def pread(self, size: int, position: int) -> bytes:
        return self._file.pread(size, position)

    def pread_cached(self, size: int, position: int) -> ReadBuffer | None:
        return self._file.pread_cached(size, position)

    def pwrite(self, data: ReadBuffer, position: int) -> None:
        if not self._disk.has_ended:
            self._disk.take_room()
            self._file.pwrite(data, position)

    def preallocate(self, size: int) -> None:
        if not self._disk.has_ended:
            self._disk.take_room()
            self._file.preallocate(size)

    def truncate(self, size: int) -> None:
        if not self._disk.has_ended:
            self._file.truncate(size)

    def sync(self) -> None:
        if not self._disk.has_ended:
            self._file.sync()

    def size(self) -> int:
        return self._file.size()

    def retain(self) -> None:
        self._file.retain()

    def release(self) -> None:
        self._file.release()


class EndableSpawn(LoopSpawn):
    """Tasks that can be ended together."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._has_ended = False

    def task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """See `seams.Spawn`. After `end` the task does nothing."""
        task = super().task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._has_ended:
            task.cancel()
        return task

    async def end(self) -> None:
        """Cancels all tasks, and returns when they are done."""
        self._has_ended = True
        while tasks := [*self._tasks]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
