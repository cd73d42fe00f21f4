"""The doors to the outside: everything a broker asks of the machine it runs on.

`Clock`, `Disk`, `Net`, `Rng` and `Spawn` are the only ways out of broker code. In production
they are the operating system and the event loop; under test each can be a simulation that is
driven by a seed. Code that decides takes what it needs from here as plain values (`now_ms`) and
never sees a door; code that does holds a `Environment`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
ReadBuffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Two clocks: one for people, one for deadlines."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes back; its zero means nothing."""

    def monotonic_ns(self) -> int:
        """The same in nanoseconds, to time what takes less than a millisecond."""


class Spawn(Protocol):
    """How work is started."""

    def task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Runs a coroutine on the loop; its owner keeps the task and awaits or cancels it."""

    def blocking(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Runs a blocking call in a worker thread; the future belongs to the loop."""


class ReadableFile(Protocol):
    """The part of a file that a reader needs."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes at `position`; fewer only at the end of the file."""


class File(ReadableFile, Protocol):
    """One open file. Positions and sizes are in bytes.

    Reference counted: it opens with one reference, `retain` and `release` add and drop one, and
    the descriptor is closed with the last. Who hands out a `FileSlice` retains first, so that a
    descriptor number is never reused under a reader.
    """

    def fileno(self) -> int:
        """The descriptor, for `sendfile`; raises `OSError` on a disk that has none."""

    def pread_cached(self, size: int, position: int) -> ReadBuffer | None:
        """The range if all of it is in the page cache; None if not, or where that is not known.

        Does not wait for the disk, and has it begin to read what is absent.
        """

    def pwrite(self, data: ReadBuffer, position: int) -> None:
        """Writes all of `data` at `position`, or raises `OSError`; part of it may be there then."""

    def preallocate(self, size: int) -> None:
        """Reserves space up to `size`; the reserved part reads as zeros. Blocking."""

    def truncate(self, size: int) -> None:
        """Cuts or extends to `size`. Blocking for a big file."""

    def sync(self) -> None:
        """Makes the file's data durable (fdatasync). Blocking."""

    def size(self) -> int: ...

    def retain(self) -> None: ...

    def release(self) -> None: ...


class DiskSpace(NamedTuple):
    """The file system of a data directory; -1 where a number is not known."""

    total_bytes: int
    usable_bytes: int
    """Free, and not reserved for the system's administrator."""


class Disk(Protocol):
    """A data directory. Paths are relative to it, with `/` between the parts."""

    @property
    def path(self) -> str:
        """The absolute path of the data directory, for people."""

    def space(self) -> DiskSpace:
        """How full the disk is. Blocking; raises `OSError`."""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        """Opens a file; with `create` it must not exist. Raises `OSError`."""

    def make_directory(self, path: str) -> None: ...

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory. Raises `OSError` when that cannot be known."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; durable after `sync_directory` of the directories involved."""

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Removes a directory and its contents."""

    def sync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in a directory durable. Blocking."""


class Listener(Protocol):
    """What listens."""

    @property
    def sockets(self) -> Sequence[Any]:
        """One for each address; `getsockname` tells it."""

    @property
    def pending_count(self) -> int:
        """Connections that were accepted and have no protocol yet."""

    def close(self) -> None:
        """Takes no more connections."""

    async def wait_closed(self) -> None:
        """Returns when nothing of it is left."""


def at_once(address: str) -> int:
    """No connection waits."""
    return 0


class Net(Protocol):
    """How connections are made, by others and to others."""

    async def listen(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        silent_ms_max: int,
        first_frame_bytes_max: int,
        has_tls: bool = False,
        is_for_brokers: bool = False,
        delay_ms: Callable[[str], int] = at_once,
    ) -> Listener:
        """Gives each connection that comes a protocol, at once or when it has sent something.

        `has_tls`: not before its TLS handshake, with the certificate that this machine has for
        clients, or with the one that it has for brokers.
        `delay_ms` says how long a connection from an address waits before anything is done for it.

        A connection without a whole frame for `silent_ms_max` may be closed without a protocol. A
        first frame that is longer than `first_frame_bytes_max` is not waited for. Raises `OSError`.
        """
        ...

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connects to another broker; `millrace_wire.connection.connect` uses it.

        With TLS where this machine has a certificate for brokers.
        Returns when the protocol has its transport. Raises `OSError`. Waits as long as the system
        does: the caller has a time limit of its own.
        """
        ...


class TokenKeys(Protocol):
    """The keys with which tokens of OAuth are checked."""

    async def check_of(self, token: str) -> Callable[[], Mapping[str, Any]]:
        """The check of a token's signature, which returns what the token says.

        Waits where the key of the token is not known yet. The check takes a while and waits for
        nothing, so it is work for a worker thread. Both raise `TokenRefused`.
        """
        ...


def no_files() -> None:
    """There are neither certificates nor keys."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The five doors together, and the keys of tokens where the broker takes any.

    `reread_files()` reads certificates and keys again now, where they have changed.
    """

    clock: Clock
    disk: Disk
    net: Net
    rng: random.Random
    spawn: Spawn
    token_keys: TokenKeys | None = None
    reread_files: Callable[[], None] = no_files


class ColdReads(Protocol):
    """The contents of the page cache of the machine. One for each event loop."""

    def is_cold(self, file: File, position: int, size: int) -> bool:
        """Whether `sendfile` of the range would wait for the disk. Does not block."""

    def passing(self, file: File) -> ReadableFile:
        """The file for a reader of all of it, once, that must not evict the pages of other readers.

        What it brings into the page cache leaves it again. Shares the reference of `file`.
        """


class SliceSource(Protocol):
    """The verification state of a slice. Belongs to the event loop, except `check`.

    Bytes that come from the disk may not be what was written. The sender of a slice asks first:
    what is not checked, or not in the page cache any more, is checked while it is read.
    """

    def is_checked(self, position: int, end_position: int) -> bool:
        """Whether the bytes were checked since the process began."""

    def check(self, file: File, position: int, until: int) -> int:
        """Reads and checks at least `[position, until)`; returns how far. Blocking.

        Called by one thread at a time. Raises what it finds wrong, and `OSError`.
        """

    def note_checked(self, *, is_first_page_new: bool) -> None:
        """The last check went well. `is_first_page_new`: the page in which it began was not in
        the page cache, so that what stands before in that page is from the disk too."""

    def note_failure(self, error: BaseException) -> None:
        """The last check raised."""

    def note_unchecked(self, position: int, end_position: int) -> None:
        """The bytes were read in another way."""


@dataclass(slots=True)
class FileSlice:
    """`size` bytes of `file` from `position`, as part of a reply.

    Holds one reference to the file from the moment it is made; its sender, or the code that drops
    it, calls `release` once.
    """

    file: File
    position: int
    size: int
    source: SliceSource

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    def read(self) -> bytes:
        """All of it, for a caller that checks it. Blocking."""
        self.source.note_unchecked(self.position, self.position + self.size)
        return self.file.pread(self.size, self.position)

    def release(self) -> None:
        """Drops the reference this slice holds."""
        self.file.release()


ResponsePart = bytes | bytearray | memoryview | FileSlice
Response = list[ResponsePart]
"""An answer as it goes out, in order."""


def release_slices(parts: Iterable[ResponsePart]) -> None:
    """Releases every file slice of a reply that will not be sent."""
    for part in parts:
        if isinstance(part, FileSlice):
            part.release()
