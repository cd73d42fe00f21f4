"""The real disk of a test, which fails on demand."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millrace_server.config import BrokerConfig
from millrace_server.disk.os_disk import DiskError, OsDisk, OsFile
from millrace_server.environment.seams import Environment, ReadBuffer
from millrace_server.machine import LoopSpawn, SystemClock
from millrace_server.net.listener import OsNet
from millrace_server.node import Node


@dataclass
class Faults:
    """What fails: an operation's name to an errno, for paths that contain `where`.

    While `may_sync` is not set, syncs of such paths wait for it.
    """

    errnos: dict[str, int] = field(default_factory=dict)
    where: str = ""
    met: int = 0
    may_sync: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_sync.set()

    def meet(self, operation: str, path: str) -> None:
        number = self.errnos.get(operation)
        if number is not None and self.where in path:
            self.met += 1
            raise DiskError(operation, path, OSError(number, os.strerror(number)))


class FailingFile(OsFile):
    """See `OsFile`."""

    __slots__ = ("_faults",)

    def __init__(self, path: str, fd: int, faults: Faults) -> None:
        super().__init__(path, fd)
        self._faults = faults

    def pread(self, size: int, position: int) -> bytes:
        self._faults.meet("read", self.path)
        return super().pread(size, position)

    def pwrite(self, data: ReadBuffer, position: int) -> None:
        self._faults.meet("write", self.path)
        super().pwrite(data, position)

    def preallocate(self, size: int) -> None:
        self._faults.meet("preallocate", self.path)
        super().preallocate(size)

    def sync(self) -> None:
        if self._faults.where in self.path:
            self._faults.may_sync.wait(20)
        self._faults.meet("sync", self.path)
        super().sync()


class FailingDisk(OsDisk):
    """See `OsDisk`."""

    def __init__(self, root: Path, faults: Faults) -> None:
        super().__init__(root)
        self.faults = faults

    def exists(self, path: str) -> bool:
        self.faults.meet("stat", path)
        return super().exists(path)

    def open(self, path: str, *, create: bool = False, write: bool = False) -> FailingFile:
        self.faults.meet("open", path)
        file = super().open(path, create=create, write=write)
        fd = os.dup(file.fileno())
        file.release()
        return FailingFile(file.path, fd, self.faults)


@asynccontextmanager
async def node_on(
    data: Path, faults: Faults, *, stop: bool = True, start_wait_ms: int = 60_000
) -> AsyncIterator[Node]:
    """A node on a disk that fails as `faults` say; with `stop` it is drained at the end."""
    spawn = LoopSpawn()
    host = Environment(SystemClock(), FailingDisk(data, faults), OsNet(), random.Random(1), spawn)
    config = BrokerConfig(data=str(data), listen="127.0.0.1:0", start_wait_ms=start_wait_ms)
    node = Node(config, host)
    await node.start()
    try:
        yield node
    finally:
        faults.may_sync.set()
        if stop:
            await node.stop()
        spawn.close()
