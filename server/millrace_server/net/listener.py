"""The operating system's network, as the `Net` door of `environment`.

An event loop accepts as many connections in a row as there are: when ten thousand clients connect
at once, no client gets a response for half a second. This listener accepts `ACCEPTS_PER_PASS` in
each pass of the loop; the others wait in the kernel's queue. An accepted connection is pending in a
`HandshakeQueue` until its first frame is there, and only then gets a protocol.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from millrace_server.environment.seams import at_once
from millrace_server.net.handshake_queue import HandshakeQueue
from millrace_server.net.tls import BrokerTlsFiles, TlsFiles

HANDSHAKE_S = 10
"""A connection is not counted before its handshake; asyncio's own limit is 60 s."""
HANDSHAKES_MAX = 512
"""TLS handshakes in progress, some 60 KB of memory each. The oldest makes room for one more."""
DELAYED_MAX = 1024
"""Connections that wait because their addresses open too many. Each holds a descriptor."""
ACCEPTS_PER_PASS = 4
"""Some 60 us of work."""
BACKLOG = 4096
"""Connections that the kernel keeps for us, cut to what the machine allows; asyncio's own default
of 100 drops some when every client comes back at once."""
NO_ROOM_PAUSE_S = 1.0
"""After the limit of open files was met: the queue would be reported as ready without end."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class OsNet:
    """Listens on TCP, with TLS when it has files for it. Connects to brokers likewise."""

    def __init__(
        self, tls: TlsFiles | None = None, broker_tls: BrokerTlsFiles | None = None
    ) -> None:
        self._tls = tls
        self._broker_tls = broker_tls

    def reread_files(self) -> None:
        """Reads certificates, keys and authorities again, where they have changed."""
        for files in (self._tls, self._broker_tls):
            if files is not None:
                files.reread()

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
    ) -> Acceptor:
        """Port 0 picks a free one. Raises `OSError`."""
        tls = self._broker_tls if is_for_brokers else self._tls
        if has_tls and tls is None:
            raise ValueError("a listener with TLS needs a certificate")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        try:
            # A name may stand for several addresses, and be listed with one of them twice.
            for family, _, _, _, address in dict.fromkeys(found):
                sockets.append(_listening(family, address))
        except OSError:
            for sock in sockets:
                sock.close()
            raise
        return Acceptor(
            loop,
            sockets,
            protocol,
            tls if has_tls else None,
            silent_ms_max=silent_ms_max,
            first_frame_bytes_max=first_frame_bytes_max,
            delay_ms=delay_ms,
        )

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """See `seams.Net`."""
        context = None if self._broker_tls is None else self._broker_tls.dialing_context()
        loop = asyncio.get_running_loop()
        return await loop.create_connection(protocol, host, port, ssl=context)


class Acceptor:
    """Takes connections from listening sockets until `close`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        protocol: Callable[[], asyncio.BaseProtocol],
        tls: TlsFiles | None,
        *,
        silent_ms_max: int,
        first_frame_bytes_max: int,
        delay_ms: Callable[[str], int],
    ) -> None:
        self.sockets = tuple(sockets)
        self._loop = loop
        self._protocol = protocol
        self._tls = tls
        self._greetings: dict[asyncio.Task[None], None] = {}
        """In the order in which they began; a dict because a set has no order."""
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._delay_ms = delay_ms
        self._delayed: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections of addresses that open too many, the oldest first."""
        self._pending = HandshakeQueue(
            loop, self._admit, timeout_ms=silent_ms_max, frame_bytes_max=first_frame_bytes_max
        )
        for sock in self.sockets:
            loop.add_reader(sock, self._accept, sock)

    @property
    def pending_count(self) -> int:
        """See `seams.Listener`."""
        return len(self._pending) + len(self._delayed)

    def close(self) -> None:
        """Takes no more; those in the kernel's queue are reset, pending ones are closed."""
        self._pending.close()
        for delayed, timer in self._delayed.items():
            timer.cancel()
            delayed.close()
        self._delayed.clear()
        for sock in self.sockets:
            pause = self._pauses.pop(sock, None)
            if pause is not None:
                pause.cancel()
            elif sock.fileno() >= 0:
                self._loop.remove_reader(sock)
            sock.close()

    async def wait_closed(self) -> None:
        """Returns when every connection that was taken has its protocol, or is gone."""
        if self._greetings:
            await asyncio.wait(self._greetings)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_PASS):
            try:
                accepted, (address, *_) = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._report(error, listening)
                if error.errno in _NO_ROOM:
                    self._loop.remove_reader(listening)
                    self._pauses[listening] = self._loop.call_later(
                        NO_ROOM_PAUSE_S, self._resume, listening
                    )
                return
            accepted.setblocking(False)
            delay_ms = self._delay_ms(address)
            if delay_ms:
                self._delay(accepted, delay_ms)
            else:
                self._pending.add(accepted)

    def _delay(self, accepted: socket.socket, delay_ms: int) -> None:
        """Has a connection wait; the oldest one that waits makes room for one more."""
        if len(self._delayed) >= DELAYED_MAX:
            oldest = next(iter(self._delayed))
            self._delayed.pop(oldest).cancel()
            oldest.close()
        self._delayed[accepted] = self._loop.call_later(delay_ms / 1000, self._end_delay, accepted)

    def _end_delay(self, accepted: socket.socket) -> None:
        del self._delayed[accepted]
        self._pending.add(accepted)

    def _admit(self, admitted: socket.socket) -> None:
        if len(self._greetings) >= HANDSHAKES_MAX:
            next(iter(self._greetings)).cancel()
        greeting = self._loop.create_task(self._greet(admitted))
        self._greetings[greeting] = None
        greeting.add_done_callback(self._greetings.pop)

    async def _greet(self, accepted: socket.socket) -> None:
        tls = self._tls
        peer = "" if tls is None else _peer_name(accepted)
        try:
            await self._loop.connect_accepted_socket(
                self._protocol,
                accepted,
                ssl=None if tls is None else tls.context(),
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_S,
            )
        except OSError as error:
            # The peer hung up, or was not understood, before there was a connection to close.
            if tls is not None:
                tls.note_failed(error, peer)
            accepted.close()
        except asyncio.CancelledError:
            # It had to make room.
            accepted.close()

    def _resume(self, listening: socket.socket) -> None:
        del self._pauses[listening]
        self._loop.add_reader(listening, self._accept, listening)

    def _report(self, error: OSError, listening: socket.socket) -> None:
        self._loop.call_exception_handler(
            {
                "message": f"accepting connections failed: {error.strerror}",
                "exception": error,
                "socket": listening,
            }
        )


def _peer_name(accepted: socket.socket) -> str:
    try:
        host, port, *_ = accepted.getpeername()
    except OSError:
        return "a peer that is gone"
    return f"{host}:{port}"


def _listening(family: int, address: object) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Else it would take the port of IPv4 too, which has a socket of its own.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)  # type: ignore[arg-type]
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
