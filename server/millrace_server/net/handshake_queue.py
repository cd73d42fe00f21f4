"""Pending connections: accepted sockets whose first frame is not there yet.

An event loop calls back for everything that is ready before it goes on, so ten thousand
connections that open, send half a frame or close together would be ten thousand callbacks between
two requests of a client. Here each of them is an entry of one epoll, of which a pass of the loop
handles a few. A connection is admitted when its first frame is complete, or when its first bytes
are not a frame. One that closes before that, or takes too long, has cost a descriptor and no more.

Owns the sockets until they are admitted. Decides nothing about their bytes, which stay in the
kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

EVENTS_PER_PASS: Final = 8
"""Some 100 us of work for closed connections, and less than 300 us for admitted ones."""
ADMITTED_PER_PASS: Final = 2
FIRST_BYTES: Final = 1024
"""A connection with a longer first frame is admitted when this much of it has arrived: the broker
does not own what the kernel holds."""
PENDING_MAX: Final = 4096
"""As many as the kernel queues for a listener. The oldest makes room for one more."""

TICKS_MAX: Final = 3
"""Ticks of the timeout: at the third after a connection arrived, two whole ticks have passed."""

_LENGTH = struct.Struct(">i")
_GONE: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_INTEREST: Final = select.EPOLLIN | select.EPOLLRDHUP


class PendingConnection(NamedTuple):
    """An accepted socket."""

    socket: socket.socket
    accepted: int
    """The number of ticks by then."""


class HandshakeQueue:
    """The pending connections of one event loop. `admit` takes over each admitted socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        admit: Callable[[socket.socket], None],
        *,
        timeout_ms: int,
        frame_bytes_max: int,
    ) -> None:
        """A connection without a whole first frame is evicted after `timeout_ms`.

        That happens not before, and at most half as much later. A frame of more than
        `frame_bytes_max` is not waited for: the connection is admitted, to be refused.
        """
        self._loop = loop
        self._admit = admit
        self._frame_bytes_max = frame_bytes_max
        self._epoll = select.epoll()
        self._pending: dict[int, PendingConnection] = {}
        """By descriptor, in the order in which they were accepted."""
        self._ticks = 0
        self._tick_s = timeout_ms / 1000 / (TICKS_MAX - 1)
        self._tick: asyncio.TimerHandle | None = None
        self._sweep: asyncio.Handle | None = None
        loop.add_reader(self._epoll.fileno(), self._poll)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, connection: socket.socket) -> None:
        """Keeps a connection until it is admitted."""
        if len(self) >= PENDING_MAX:
            self._evict(next(iter(self._pending)))
        self._pending[connection.fileno()] = PendingConnection(connection, self._ticks)
        self._epoll.register(connection.fileno(), _INTEREST)
        if self._tick is None:
            self._tick = self._loop.call_later(self._tick_s, self._on_tick)

    def close(self) -> None:
        """Closes every pending connection."""
        for handle in (self._tick, self._sweep):
            if handle is not None:
                handle.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        for pending in self._pending.values():
            pending.socket.close()
        self._pending.clear()
        self._epoll.close()

    def _poll(self) -> None:
        """Handles some of what is ready; the rest is reported again in the next pass."""
        admitted = 0
        for descriptor, events in self._epoll.poll(0, EVENTS_PER_PASS):
            connection = self._pending[descriptor].socket
            try:
                is_ready = self._is_ready(connection, is_gone=bool(events & _GONE))
            except OSError:
                is_ready = None
            if is_ready is None:
                self._evict(descriptor)
            elif is_ready:
                if admitted == ADMITTED_PER_PASS:
                    continue
                admitted += 1
                self._admit(self._remove(descriptor))

    def _on_tick(self) -> None:
        self._ticks += 1
        self._tick = None
        if self._pending:
            self._tick = self._loop.call_later(self._tick_s, self._on_tick)
            if self._sweep is None:
                self._evict_overdue()

    def _evict_overdue(self) -> None:
        """Evicts the connections whose time is over, the oldest first; a few in each pass."""
        self._sweep = None
        for descriptor in list(islice(self._pending, EVENTS_PER_PASS)):
            if self._ticks - self._pending[descriptor].accepted < TICKS_MAX:
                return
            self._evict(descriptor)
        if self._pending:
            self._sweep = self._loop.call_soon(self._evict_overdue)

    def _remove(self, descriptor: int) -> socket.socket:
        self._epoll.unregister(descriptor)
        return self._pending.pop(descriptor).socket

    def _evict(self, descriptor: int) -> None:
        connection = self._remove(descriptor)
        # Unread bytes would turn the end into a reset.
        with contextlib.suppress(OSError):
            connection.recv(FIRST_BYTES)
        connection.close()

    def _is_ready(self, connection: socket.socket, *, is_gone: bool) -> bool | None:
        """Whether there is something to answer; None when nothing more will arrive.

        Has the kernel report the connection again only when the rest of its frame is there.
        """
        (available,) = struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, b"\0\0\0\0"))
        if not available:
            return None if is_gone else False
        head = connection.recv(_LENGTH.size, socket.MSG_PEEK)
        wanted = _LENGTH.size
        if len(head) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            if 0 < length <= self._frame_bytes_max:
                wanted = min(wanted + length, FIRST_BYTES)
        if head[0] or available >= wanted:
            # Text, a frame, or a length that a first frame cannot have.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return True
        if is_gone:
            return None
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
        return False
