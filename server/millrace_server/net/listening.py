"""The operating system's network, as the `Net` door of `host.py`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

_HANDSHAKE_S = 10
"""A connection is not counted before its handshake; asyncio's own limit is 60 s."""


class OsNet:
    """Listens on TCP, with TLS when it has a context for it."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def listen(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Server:
        """Port 0 picks a free one. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            protocol,
            host,
            port,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S,
            # The kernel's default cuts this to what the machine allows; asyncio's own default
            # of 100 drops connections when every client comes back at once.
            backlog=4096,
            reuse_address=True,
        )
