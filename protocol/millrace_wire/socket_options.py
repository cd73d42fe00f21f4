"""Options of a connected socket: when the kernel sends, when it wakes, when it asks for the peer.

Owns the places where a connection reaches below its transport. They are left out where the system
or the transport has no such option; the bytes are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

from millrace_wire.request_pipeline import Piece

JOINED_BYTES_MAX: Final = 64 << 10
"""A frame up to this size is joined: the copy costs less than one more call of the kernel."""
WAKE_BYTES: Final = 1 << 20
"""The event loop wakes up for this many bytes of a large frame, or for all that it lacks."""
KEEPALIVE_S: Final = 20
"""A client asks for a broker that has sent nothing for so long. A machine that lost its power says
nothing by itself, and some responses are waited for during minutes: that to JoinGroup is one."""
_PROBES: Final = 4
_CORK: Final = getattr(socket, "TCP_CORK", None)
"""Linux alone has it."""


def write_frame(transport: asyncio.Transport, pieces: list[Piece], size: int) -> None:
    """Writes the pieces of a frame, of `size` bytes together, without joining large ones.

    The transport may keep the pieces until they have left.
    """
    # The standard library's transports join the pieces before Python 3.12. uvloop's, those of TLS
    # and newer ones of the library have a `writelines` of their own.
    joins = type(transport).writelines is asyncio.WriteTransport.writelines
    sock = transport.get_extra_info("socket") if joins and size > JOINED_BYTES_MAX else None
    if sock is None or _CORK is None:
        transport.writelines(pieces)
        return
    # Without the cork each small piece travels by itself and wakes the peer.
    sock.setsockopt(socket.IPPROTO_TCP, _CORK, 1)
    for piece in pieces:
        transport.write(piece)
    sock.setsockopt(socket.IPPROTO_TCP, _CORK, 0)


def set_wake_bytes(transport: asyncio.Transport, count: int) -> None:
    """Has the event loop wake up when `count` bytes have arrived, or fewer and then the end.

    A process that wakes up for each segment receives little at a time, and does the sender's work
    in the kernel: with a broker on the same machine, waiting takes a third of the CPU time.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and hasattr(socket, "SO_RCVLOWAT"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


def set_keepalive(sock: socket.socket, *, idle_s: int) -> None:
    """Has the kernel ask for a peer that has been silent for `idle_s`, and give it up after as
    long again without an answer. Does nothing for sockets that are not TCP's."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = (
        ("TCP_KEEPIDLE", idle_s),
        ("TCP_KEEPINTVL", max(1, idle_s // _PROBES)),
        ("TCP_KEEPCNT", _PROBES),
    )
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
