"""The console as a process: listens, logs in, serves, ends.

Owns the order. Knows no command line: `millrace console` brings the flags.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from millrace.admin import Admin
from millrace_console.access import SecretAuthenticator
from millrace_console.app import Console
from millrace_console.sampler import Sampler
from millrace_console.tail import Tails

CONNECTIONS_MAX = 64
_HEAD_BYTES_MAX = 16 * 1024
_CLOSE_S = 2
REQUEST_TIMEOUT_MS = 5_000
"""Unless `options` has another: a broker that hangs must not hide what the others say."""


class _Server(uvicorn.Server):
    """A server whose caller handles signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    servers: str,
    listener: socket.socket,
    *,
    options: Mapping[str, Any],
    password: str | None,
    hosts: Collection[str],
    allow_changes: bool,
    on_ready: Callable[[str], None],
) -> None:
    """Serves on a socket that listens, until it is cancelled.

    Without a password it makes a token. `on_ready` gets the address to open, with the token in it.
    Raises what `Admin.start` raises.
    """
    host, port = listener.getsockname()[:2]
    secret = password or secrets.token_urlsafe(24)
    options = {"request_timeout_ms": REQUEST_TIMEOUT_MS, **options}
    async with Admin(servers, **options) as admin:
        sampler = Sampler(admin)
        console = Console(
            servers,
            options,
            admin,
            sampler,
            SecretAuthenticator(secret),
            f"millrace-console-{port}",
            hosts,
            allow_changes,
        )
        config = uvicorn.Config(
            console.app(),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
            timeout_graceful_shutdown=_CLOSE_S,
        )
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{port}/"
        on_ready(url if password else f"{url}login?token={secret}")
        await _until_cancelled(_Server(config), listener, sampler, console.tails)


async def _until_cancelled(
    server: _Server, listener: socket.socket, sampler: Sampler, tails: Tails
) -> None:
    reading = asyncio.create_task(sampler.run())
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.wait([reading, serving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        # The server waits for its responses, and a tail would not end by itself.
        tails.close()
        reading.cancel()
        await asyncio.wait([reading, serving])
    for task in (reading, serving):
        if not task.cancelled():
            task.result()
