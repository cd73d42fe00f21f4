"""A contestant: a server in a process of its own, started, stopped, killed and observed.

Owns the process and its clocks. A subclass says how its server is started, which durabilities it
has, how a topic is made, and which ways (client APIs) there are to it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.apache_kafka import free_port
from benchmarks.processes import last_words, process_cpu_s, resident_bytes
from benchmarks.session import Session

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.01
BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's blocks are."""
PAGE_CACHE = "page cache"
FSYNC = "fsync"


class Unavailable(Exception):
    """A peer is not to be had here; the text says why, and what to install."""


@dataclass(frozen=True, slots=True)
class Way:
    """One client API of a server.

    `client` is a module of `benchmarks.peers.clients` and `method` one of its ways to send or to
    receive. A way with a `share` above 1 is so many times slower than the rest, and its rounds
    have so many times fewer records. Those that are `main` run in all cases of the matrix.
    """

    name: str
    client: str
    method: str
    durability: str = PAGE_CACHE
    share: int = 1
    main: bool = False
    checks_values: bool = True
    """Whether its values are those of the pool in their order, so that a checksum is known."""


class Contestant(ABC):
    """NEW -> started -> stopped or killed -> started again; `data` outlives the process."""

    name: ClassVar[str]
    durabilities: ClassVar[Mapping[str, str]]
    """Each durability by the short name that ways use, and what it means for this server."""
    writers: ClassVar[Sequence[Way]]
    readers: ClassVar[Sequence[Way]]
    paced: ClassVar[Sequence[Way]]
    """Ways that send one record at a time, on a schedule, to a consumer."""
    verifier: ClassVar[tuple[str, str]]
    """The client and the method that read back what the writers have written."""
    compresses: ClassVar[bool] = False
    """Whether a producer can compress batches."""
    has_acks: ClassVar[bool] = False
    """Whether a producer chooses how many replicas ack."""
    reads_from_disk: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    """Whether members of a group share partitions, which move when a member joins."""

    def __init__(self, session: Session, directory: Path) -> None:
        """Takes an empty directory for the server's data. Starts nothing."""
        self.session = session
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def version(self) -> str:
        """The server's version. Raises `Unavailable` where it cannot run."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What starts the server on `data` and `port`."""

    @abstractmethod
    def create_topic(self, topic: str, *, partitions: int = 1, durability: str) -> None:
        """Makes an empty topic; the server runs."""

    @abstractmethod
    def delete_topic(self, topic: str) -> None:
        """Removes a topic and, soon, its files."""

    def environment(self) -> Mapping[str, str]:
        """Variables for the server beside those of this process."""
        return {}

    def prepare(self) -> None:
        """Makes what has to be there before the first start."""
        self.data.mkdir(parents=True, exist_ok=True)

    @property
    def servers(self) -> str:
        """The address as clients take it."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process of the running server."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    def spawn(self) -> None:
        """Starts the server's process, and does not wait for it."""
        if not self.data.exists():
            self.prepare()
        with self.session.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment()},
            )

    def start(self) -> None:
        """Starts the server and waits until it listens. Raises `Unavailable` if it ends instead."""
        self.spawn()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(POLL_S)
            else:
                return
        self.kill()
        raise Unavailable(f"{self.name} does not start: {last_words(self.session.log)}")

    def stop(self) -> None:
        """Stops the server in order, within a minute."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Ends the server with SIGKILL."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def cpu_s(self) -> float:
        """CPU seconds of all threads of the server so far."""
        return process_cpu_s(self.pid)

    def resident_bytes(self) -> int:
        """The server's memory that is in RAM."""
        return resident_bytes(self.pid)

    def disk_bytes(self) -> int:
        """Blocks that the file system has allocated for the server's files, in bytes."""
        total = 0
        for path in self.data.rglob("*"):
            try:
                total += path.stat().st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue  # It was removed in between.
        return total

    def drop_cached_pages(self) -> None:
        """Has the kernel forget the server's files, so that the next reads come from the disk."""
        os.sync()
        for path in self.data.rglob("*"):
            if path.is_file():
                file = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)
