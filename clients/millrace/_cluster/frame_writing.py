"""A frame in pieces, handed to a transport without being put together.

Owns what the standard library's transport does not have before Python 3.12: its `writelines` joins
the pieces into one more copy.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

JOINED_BYTES_MAX: Final = 64 * 1024
"""A frame up to this size is joined: that costs less than one more call of the kernel."""
_CORK: Final = getattr(socket, "TCP_CORK", None)
"""Linux alone has it."""


def write_frame(
    transport: asyncio.Transport, pieces: Sequence[bytes | bytearray | memoryview], size: int
) -> None:
    """Sends the pieces, of `size` bytes together, in their order.

    A transport may keep them as they are until they have left.
    """
    # What a transport inherits joins; uvloop's, TLS, and newer ones of the library have their own.
    joins = type(transport).writelines is asyncio.WriteTransport.writelines
    sock = transport.get_extra_info("socket") if joins and size > JOINED_BYTES_MAX else None
    if sock is None or _CORK is None:
        transport.writelines(pieces)
        return
    # Without the cork each small piece would travel, and wake the broker, by itself.
    sock.setsockopt(socket.IPPROTO_TCP, _CORK, 1)
    for piece in pieces:
        transport.write(piece)
    sock.setsockopt(socket.IPPROTO_TCP, _CORK, 0)
