"""A server on a real socket with a scripted handler, and a peer that misbehaves on demand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
import uvloop

from millrace_protocol.framing import TEXT_OPENINGS
from millrace_server.dialects.text.line_framing import last_line, next_line
from millrace_server.environment.seams import (
    ColdReads,
    Disk,
    Environment,
    File,
    FileSlice,
    Net,
    ReadBuffer,
    Response,
    SliceSource,
    at_once,
    release_slices,
)
from millrace_server.limits import Limits
from millrace_server.listeners import ListenerConfig
from millrace_server.loop.fair_scheduler import TURN_NS, FairScheduler
from millrace_server.net.connection import Connection
from millrace_server.net.dialect import Handled, Peer
from millrace_server.net.server import Server
from millrace_wire.frame_reader import FrameLengthError, FrameReader, FramingError
from tests.hang_timeout import HANG_TIMEOUT_S

T = TypeVar("T")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every test of this folder runs on both event loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class ChunkClock:
    """A clock that every look at it moves on, as chunks of that time would."""

    def __init__(self, chunk_ns: int) -> None:
        self._chunk_ns = chunk_ns
        self._now_ns = 0

    def wall_ms(self) -> int:
        return self._now_ns // 1_000_000

    def monotonic_ms(self) -> int:
        return self._now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        self._now_ns += self._chunk_ns
        return self._now_ns


class SetClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000


class ThreadSpawn:
    def task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return asyncio.get_running_loop().create_task(work, name=name)

    def blocking(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(None, work, *args)


class NoDisk:
    """Connections never open files; they are handed slices of open ones."""


class SoundSource:
    """Bytes that were all checked before; whatever is read again is as it was."""

    def is_checked(self, position: int, end_position: int) -> bool:
        return True

    def check(self, file: File, position: int, until: int) -> int:
        assert file.pread(until - position, position)
        return until

    def note_checked(self, *, is_first_page_new: bool) -> None: ...

    def note_failure(self, error: BaseException) -> None: ...

    def note_unchecked(self, position: int, end_position: int) -> None: ...


class CountedFile:
    """A real file that knows how many references are out."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.references = 1
        self.released_too_often = False
        self.is_cached = True
        Path(path).write_bytes(data)
        self._fd = os.open(path, os.O_RDWR)

    def fileno(self) -> int:
        return self._fd

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def pread_cached(self, size: int, position: int) -> bytes | None:
        data = os.pread(self._fd, size, position) if self.is_cached else b""
        return data if len(data) == size else None

    def pwrite(self, data: ReadBuffer, position: int) -> None:
        os.pwrite(self._fd, data, position)

    def preallocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def retain(self) -> None:
        self.references += 1

    def release(self) -> None:
        self.references -= 1
        self.released_too_often |= self.references < 0
        if self.references == 0:
            os.close(self._fd)

    def slice(self, position: int, size: int, source: SliceSource | None = None) -> FileSlice:
        self.retain()
        return FileSlice(self, position, size, source or SoundSource())


Answer = Handled | asyncio.Future[Response]
"""What a script returns; a future is awaited by a coroutine."""


@dataclass
class ScriptedHandler:
    """Echoes frames and lines unless told otherwise; remembers what it saw."""

    on_frame: Callable[[Connection, bytes], Answer] | None = None
    on_line: Callable[[Connection, bytes], Answer] | None = None
    frames: int = 0
    owned: list[bool] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    lost: list[Connection] = field(default_factory=list)

    def frame(self, connection: Connection, frame: memoryview, owned: bool) -> Answer:
        """Handles one frame."""
        self._note(connection)
        self.frames += 1
        self.owned.append(owned)
        if self.on_frame is None:
            return [bytes(frame)]
        return self.on_frame(connection, bytes(frame))

    def line(self, connection: Connection, line: bytes) -> Answer:
        """Handles one line."""
        self._note(connection)
        if self.on_line is None:
            return [line + b"\n"]
        return self.on_line(connection, line)

    def _note(self, connection: Connection) -> None:
        if connection not in self.connections:
            self.connections.append(connection)


class ScriptedSession:
    """One connection of a `ScriptedDialect`."""

    def __init__(self, handler: ScriptedHandler, connection: Connection, *, text: bool) -> None:
        self._handler = handler
        self._connection = connection
        self._text = text

    def next_request(self, reader: FrameReader) -> ReadBuffer | None:
        if not self._text:
            return reader.next_frame()
        limits = self._connection._shared.limits
        return next_line(reader, line_bytes_max=limits.line_bytes_max)

    def may_overlap(self, reader: FrameReader) -> bool:
        return True

    def last_request(self, reader: FrameReader) -> ReadBuffer | None:
        return last_line(reader) if self._text else None

    def handle(self, request: ReadBuffer, *, owned: bool) -> Handled:
        if self._text:
            answer = self._handler.line(self._connection, bytes(request))
        else:
            assert isinstance(request, memoryview)
            answer = self._handler.frame(self._connection, request, owned)
        return _awaiting(answer) if isinstance(answer, asyncio.Future) else answer

    def refuse(self, error: FramingError) -> Response:
        if isinstance(error, FrameLengthError):
            return [b"bad length %d" % error.length]
        return [b"line over %d" % self._connection._shared.limits.line_bytes_max]

    def refuse_connection(self, reason: str) -> Response:
        return [reason.encode()]


async def _awaiting(answer: asyncio.Future[Response]) -> Response:
    try:
        return await answer
    except asyncio.CancelledError:
        # The result came in the pass in which the connection was lost.
        if answer.done() and not answer.cancelled():
            release_slices(answer.result())
        raise


@dataclass
class ScriptedDialect:
    """Lines, or frames: whatever does not begin like a line."""

    handler: ScriptedHandler
    text: bool

    def recognizes(self, first_bytes: ReadBuffer) -> bool | None:
        return not self.text or first_bytes[0] in TEXT_OPENINGS

    def open(self, connection: Peer) -> ScriptedSession:
        assert isinstance(connection, Connection)
        return ScriptedSession(self.handler, connection, text=self.text)


def frame_of(body: bytes) -> bytes:
    """A frame with a body of at least 8 bytes."""
    return struct.pack(">I", len(body)) + body


class RemotePeer:
    """The other end of a connection, in full control of its socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    def send_what_fits(self, data: bytes | memoryview) -> int:
        """Writes without waiting; how many bytes the kernels took."""
        sent = 0
        try:
            while sent < len(data):
                sent += self.socket.send(data[sent : sent + 65536])
        except BlockingIOError:
            pass
        return sent

    async def receive(self, size: int) -> bytes:
        """Exactly `size` bytes, or fewer when the other side ends first."""
        data = bytearray()
        while len(data) < size:
            piece = await self._loop.sock_recv(self.socket, min(size - len(data), 1 << 20))
            if not piece:
                break
            data += piece
        return bytes(data)

    async def receive_to_end(self) -> bytes:
        data = bytearray()
        while piece := await self._loop.sock_recv(self.socket, 1 << 20):
            data += piece
        return bytes(data)

    def end_input(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Closes with a reset instead of an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


async def until(fact: Callable[[], bool]) -> None:
    """Lets the loop run until something is so."""
    async with asyncio.timeout(HANG_TIMEOUT_S):
        while not fact():  # noqa: ASYNC110 - nothing announces the facts of a socket
            await asyncio.sleep(0)


def open_descriptors() -> int:
    """How many descriptors are open, apart from the one that uvloop holds in reserve."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += link.readlink() != Path("/dev/null")
    return count


@dataclass
class Place:
    """One server under test with what surrounds it."""

    server: Server
    handler: ScriptedHandler
    clock: SetClock
    address: tuple[str, int]
    peers: list[RemotePeer]

    async def connect(self, *, receive_buffer_bytes: int | None = None) -> RemotePeer:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        peer = RemotePeer(sock)
        self.peers.append(peer)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        return peer

    @property
    def scheduler(self) -> FairScheduler:
        """The fair scheduler that the connections share."""
        return self.server._shared.scheduler

    async def connected(self) -> Connection:
        """The only connection, once the server has taken it in."""
        await until(lambda: len(self.server.connections) == 1)
        return next(iter(self.server.connections))

    def pass_time(self, duration_ms: int) -> None:
        """Moves the clock and looks at every connection, often enough to be precise."""
        for _ in range(10):
            self.server.sweep()
            self.clock.now_ms += duration_ms // 10
        self.server.sweep()


class StraightListener:
    """See `seams.Listener`: no connection is ever pending."""

    pending_count = 0

    def __init__(self, server: asyncio.Server) -> None:
        self.sockets = server.sockets
        self.close = server.close
        self.wait_closed = server.wait_closed


class StraightNet:
    """Gives each connection its protocol when it comes, so that a test need not say anything."""

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
    ) -> StraightListener:
        """See `seams.Net`."""
        loop = asyncio.get_running_loop()
        return StraightListener(await loop.create_server(protocol, host, port))

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """See `seams.Net`."""
        return await asyncio.get_running_loop().create_connection(protocol, host, port)


class WatchedServer(Server):
    """Remembers in the handler which connections were lost."""

    def __init__(self, handler: ScriptedHandler, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._handler = handler

    def lost(self, connection: Connection) -> None:
        super().lost(connection)
        self._handler.lost.append(connection)


class Serve(Protocol):
    def __call__(
        self,
        *,
        limits: Limits | None = None,
        cold_reads: ColdReads | None = None,
        net: Net | None = None,
        has_tls: bool = False,
    ) -> Awaitable[Place]: ...


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers; afterwards every connection is lost and every descriptor closed."""
    before = open_descriptors()
    places: list[Place] = []

    async def start(
        *,
        limits: Limits | None = None,
        cold_reads: ColdReads | None = None,
        net: Net | None = None,
        has_tls: bool = False,
    ) -> Place:
        clock = SetClock()
        disk: Disk = NoDisk()  # type: ignore[assignment]
        host = Environment(clock, disk, net or StraightNet(), random.Random(1), ThreadSpawn())
        handler = ScriptedHandler()
        # One chunk in a pass: a test sees each.
        scheduler = FairScheduler(asyncio.get_running_loop(), ChunkClock(TURN_NS))
        server = WatchedServer(handler, host, limits, cold_reads=cold_reads, scheduler=scheduler)
        dialects = [ScriptedDialect(handler, text) for text in (True, False)]
        listener = ListenerConfig("plain", ("127.0.0.1", 0), is_tls=has_tls)
        (address,) = await server.start(dialects, [listener])
        place = Place(server, handler, clock, address, [])
        places.append(place)
        return place

    yield start
    for place in places:
        for peer in place.peers:
            peer.socket.close()
        await place.server.drain(5_000)
        assert not place.server.connections
        assert place.server.memory.used == 0
        assert place.server.memory.waiting_count == 0
    await until(lambda: open_descriptors() <= before)
    assert open_descriptors() == before


@pytest.fixture
def counted_file() -> Iterator[Callable[[bytes], CountedFile]]:
    """Makes files; afterwards every slice of them was released exactly once."""
    files: list[CountedFile] = []
    with tempfile.TemporaryDirectory() as directory:

        def make(data: bytes) -> CountedFile:
            file = CountedFile(f"{directory}/{len(files)}.log", data)
            files.append(file)
            return file

        yield make
        for file in files:
            assert file.references == 1
            assert not file.released_too_often
            file.release()
