"""Where connections wait until they have said something whole: nobody in the house sees them.

Event loops call back for everything that is ready before they go on, so ten thousand strangers who
come, say half a word, or hang up together would be ten thousand callbacks between two requests of
a client. Here they are entries of an epoll of their own, of which a pass of the loop takes a few.
Who has sent a first frame, or bytes that are none, is let in; who hangs up before that, or takes
too long, is gone without having cost more than a descriptor.

Owns the sockets until then. Decides nothing about what was sent: the bytes stay in the kernel.
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
"""Some 100 us of work when they hang up, and less than 300 us when `ADMITTED_PER_PASS` come in."""
ADMITTED_PER_PASS: Final = 2
FIRST_BYTES: Final = 1024
"""A longer first frame is let in when so much of it is there; what the kernel holds is not ours."""
STRANGERS_MAX: Final = 4096
"""As many as the kernel queues for us. The one who has waited longest makes room for one more."""

TICKS_MAX: Final = 3
"""Looks at who waits; at the third since somebody came, two whole ticks have passed."""

_LENGTH = struct.Struct(">i")
_GONE: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_INTEREST: Final = select.EPOLLIN | select.EPOLLRDHUP


class _Stranger(NamedTuple):
    socket: socket.socket
    came: int
    """The number of ticks by then."""


class HandshakeQueue:
    """Strangers on one event loop. `admit` gets each socket that is let in, to keep."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        admit: Callable[[socket.socket], None],
        *,
        timeout_ms: int,
        frame_bytes_max: int,
    ) -> None:
        """Who has said nothing whole for `timeout_ms` is sent away: not before, and half as long
        later at most. A frame of more than `frame_bytes_max` is not waited for, but to be refused.
        """
        self._loop = loop
        self._admit = admit
        self._frame_bytes_max = frame_bytes_max
        self._epoll = select.epoll()
        self._strangers: dict[int, _Stranger] = {}
        """By descriptor, in the order they came."""
        self._ticks = 0
        self._tick_s = timeout_ms / 1000 / (TICKS_MAX - 1)
        self._tick: asyncio.TimerHandle | None = None
        self._sweep: asyncio.Handle | None = None
        loop.add_reader(self._epoll.fileno(), self._look)

    def __len__(self) -> int:
        return len(self._strangers)

    def take(self, stranger: socket.socket) -> None:
        """Keeps a connection until it may come in."""
        if len(self) >= STRANGERS_MAX:
            self._send_away(next(iter(self._strangers)))
        self._strangers[stranger.fileno()] = _Stranger(stranger, self._ticks)
        self._epoll.register(stranger.fileno(), _INTEREST)
        if self._tick is None:
            self._tick = self._loop.call_later(self._tick_s, self._on_tick)

    def close(self) -> None:
        """Sends everybody away."""
        for handle in (self._tick, self._sweep):
            if handle is not None:
                handle.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        for stranger in self._strangers.values():
            stranger.socket.close()
        self._strangers.clear()
        self._epoll.close()

    def _look(self) -> None:
        """Some of what is ready; the rest is reported again in the next pass."""
        admitted = 0
        for descriptor, events in self._epoll.poll(0, EVENTS_PER_PASS):
            stranger = self._strangers[descriptor].socket
            try:
                is_welcome = self._has_spoken(stranger, is_gone=bool(events & _GONE))
            except OSError:
                is_welcome = None
            if is_welcome is None:
                self._send_away(descriptor)
            elif is_welcome:
                if admitted == ADMITTED_PER_PASS:
                    continue
                admitted += 1
                self._admit(self._let_go(descriptor))

    def _on_tick(self) -> None:
        self._ticks += 1
        self._tick = None
        if self._strangers:
            self._tick = self._loop.call_later(self._tick_s, self._on_tick)
            if self._sweep is None:
                self._send_some_away()

    def _send_some_away(self) -> None:
        """Those whose time is over, who came first; a few in each pass."""
        self._sweep = None
        for descriptor in list(islice(self._strangers, EVENTS_PER_PASS)):
            if self._ticks - self._strangers[descriptor].came < TICKS_MAX:
                return
            self._send_away(descriptor)
        if self._strangers:
            self._sweep = self._loop.call_soon(self._send_some_away)

    def _let_go(self, descriptor: int) -> socket.socket:
        self._epoll.unregister(descriptor)
        return self._strangers.pop(descriptor).socket

    def _send_away(self, descriptor: int) -> None:
        stranger = self._let_go(descriptor)
        # Unread bytes would make the end a reset.
        with contextlib.suppress(OSError):
            stranger.recv(FIRST_BYTES)
        stranger.close()

    def _has_spoken(self, stranger: socket.socket, *, is_gone: bool) -> bool | None:
        """Whether there is something to answer; None when nothing will come any more.

        Asks the kernel to report the stranger again only when the rest of its frame is there.
        """
        (available,) = struct.unpack("i", fcntl.ioctl(stranger, termios.FIONREAD, b"\0\0\0\0"))
        if not available:
            return None if is_gone else False
        head = stranger.recv(_LENGTH.size, socket.MSG_PEEK)
        wanted = _LENGTH.size
        if len(head) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            if 0 < length <= self._frame_bytes_max:
                wanted = min(wanted + length, FIRST_BYTES)
        if head[0] or available >= wanted:
            # Text, a frame, or no length that a first frame may have.
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return True
        if is_gone:
            return None
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
        return False
