"""The two ways bytes leave: straight on a socket, or through a transport.

Owns the descriptor of a connection as far as writing goes. Knows nothing of answers or order;
that is `net/output.py`.

`SocketWire` never calls `transport.write`: a header goes out by `send` with MSG_MORE and joins
the file bytes that `sendfile` puts after it. Three facts shape it. Event loops refuse
`add_writer` on a transport's own descriptor but take a duplicate; a duplicate that is closed
while it is registered makes epoll report it for ever; and an open duplicate keeps the connection
from being closed. So the duplicate exists exactly while the peer is waited for.

`TransportWire` is for TLS and for transports that have no socket: file bytes are read and
written in pieces.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol

from millrace_server.environment.seams import FileSlice, ReadBuffer
from millrace_wire.socket_options import set_keepalive

TRANSPORT_READ_BYTES = 64 << 10
_KEEPALIVE_S = 60
"""A peer that vanished is noticed after about two minutes, even while only it is owed."""


class Wire(Protocol):
    """Where output goes. `send` and `send_file` raise `BlockingIOError` when the peer must read
    first, and another `OSError` when the connection or the file is broken."""

    survives_eof: bool
    """Whether answers can still be sent after the peer ended its input."""

    def send(self, data: ReadBuffer, *, more: bool) -> int:
        """Sends some of `data`, returns how much; `more` says that other bytes follow."""

    def send_file(self, part: FileSlice, size: int) -> int:
        """Sends up to `size` bytes from the front of `part`; 0 when the file ends before it."""

    def wait(self, writable: Callable[[], None]) -> None:
        """Calls `writable` whenever there is room, until `stop_waiting`."""

    def stop_waiting(self) -> None: ...

    def pause(self) -> None:
        """The transport takes no more for now."""

    def resume(self) -> None:
        """It does again."""

    def shut(self) -> bool:
        """Ends our side after what was sent; False when this wire cannot."""

    def close(self) -> None:
        """Lets go of the connection without closing it; called when it is lost."""


def wire_of(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> Wire:
    """How bytes leave by a transport."""
    borrowed = transport.get_extra_info("socket")
    if borrowed is None or transport.get_extra_info("sslcontext") is not None:
        return TransportWire(transport, loop)
    return SocketWire(borrowed.fileno(), loop)


def peer_name(transport: asyncio.Transport) -> str:
    """Address and port of the peer, as text."""
    match transport.get_extra_info("peername"):
        case (str(host), int(port)):
            return f"{host}:{port}"
        case (str(host), int(port), _, _):
            return f"[{host}]:{port}"
        case address:
            return "local" if not address else str(address)


class SocketWire:
    """Output straight on the descriptor of a plaintext socket of any family."""

    __slots__ = ("_duplicate", "_fd", "_loop", "_socket")

    survives_eof = True

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._duplicate = -1
        # Borrowed from the transport: `close` detaches it, so that it is closed once.
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        _tune(self._socket)

    def send(self, data: ReadBuffer, *, more: bool) -> int:
        return self._socket.send(data, socket.MSG_MORE if more else 0)

    def send_file(self, part: FileSlice, size: int) -> int:
        return os.sendfile(self._fd, part.file.fileno(), part.position, size)

    def wait(self, writable: Callable[[], None]) -> None:
        if self._duplicate < 0:
            self._duplicate = os.dup(self._fd)
            self._loop.add_writer(self._duplicate, writable)

    def stop_waiting(self) -> None:
        if self._duplicate >= 0:
            self._loop.remove_writer(self._duplicate)
            os.close(self._duplicate)
            self._duplicate = -1

    def pause(self) -> None:
        """Nothing is written to the transport."""

    def resume(self) -> None:
        """The same."""

    def shut(self) -> bool:
        self._socket.shutdown(socket.SHUT_WR)
        return True

    def close(self) -> None:
        self.stop_waiting()
        self._socket.detach()


class TransportWire:
    """Output through `transport.write`; `pause` and `resume` are its flow control."""

    __slots__ = ("_loop", "_paused", "_transport", "_writable", "survives_eof")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._writable: Callable[[], None] | None = None
        # A TLS transport closes itself when the peer ends its input.
        self.survives_eof = transport.get_extra_info("sslcontext") is None
        # With high=0 a TLS transport never calls `resume_writing`.
        transport.set_write_buffer_limits(high=1, low=0)
        # A server of TLS has sent session tickets, which may not have left yet.
        self._paused = transport.get_write_buffer_size() > 0
        borrowed = transport.get_extra_info("socket")
        if borrowed is not None:
            lent = socket.socket(fileno=borrowed.fileno())
            _tune(lent)
            lent.detach()

    def send(self, data: ReadBuffer, *, more: bool) -> int:
        self._check()
        self._transport.write(data)
        return len(data)

    def send_file(self, part: FileSlice, size: int) -> int:
        self._check()
        data = part.file.pread(min(size, TRANSPORT_READ_BYTES), part.position)
        self._transport.write(data)
        return len(data)

    def wait(self, writable: Callable[[], None]) -> None:
        self._writable = writable

    def stop_waiting(self) -> None:
        self._writable = None

    def shut(self) -> bool:
        if not self._transport.can_write_eof():
            return False
        self._transport.write_eof()
        return True

    def close(self) -> None:
        self._writable = None

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._writable is not None:
            # Not from inside the transport, which is in the middle of its own buffers.
            self._loop.call_soon(self._writable)

    def _check(self) -> None:
        if self._paused:
            raise BlockingIOError
        if self._transport.is_closing():
            raise ConnectionResetError("the transport is closing")


def _tune(sock: socket.socket) -> None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # asyncio does this for some listening sockets only, and a small answer after a large one
    # waits 40 ms without it.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    set_keepalive(sock, idle_s=_KEEPALIVE_S)
