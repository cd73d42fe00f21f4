"""The console as a process: listens, logs in, serves, ends.

Owns the order. Knows no command line: `millrace console` brings the flags.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from millrace.errors import AuthenticationFailed, ConfigError
from millrace_console import login
from millrace_console.access import Sessions
from millrace_console.app import Console
from millrace_console.clients import Clients

CONNECTIONS_MAX = 64
_HEAD_BYTES_MAX = 16 * 1024
_CLOSE_S = 2
REQUEST_TIMEOUT_MS = 5_000
"""Unless `options` has another: a broker that hangs must not hide what the others say."""
_OVERDUE_INTERVAL_S = 10.0
"""Sessions that are overdue end so soon."""


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
    user_login: bool,
    hosts: Collection[str],
    allow_changes: bool,
    on_ready: Callable[[str], None],
) -> None:
    """Serves on a socket that listens, until it is cancelled.

    With `user_login`, or where the brokers want a user and `options` has none, users log in to the
    brokers. Otherwise all have the rights of `options`, and log in with the password; without one
    the console makes a token. `on_ready` gets the address to open, with the token in it.
    Raises `ConfigError`, and what `Admin.start` raises.
    """
    options = {"request_timeout_ms": REQUEST_TIMEOUT_MS, **options}
    shared = await _shared_clients(servers, options, user_login=user_login)
    if shared is None and password is not None:
        raise ConfigError(
            "password: users log in with the passwords that they have at the brokers; leave the "
            "password of the console out"
        )
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}/"
    secret = password or secrets.token_urlsafe(24)
    async with asyncio.TaskGroup() as tasks:
        users: login.Login
        if shared is None:
            users = login.BrokerLogin(servers, options, tasks)
            sessions = Sessions(count_max=login.USER_SESSIONS_MAX, idle_s=login.IDLE_S)
        else:
            shared.run_in(tasks)
            users, sessions = login.ConsoleLogin(secret, shared), Sessions()
        cookie = f"millrace-console-{port}"
        console = Console(users, cookie, sessions, hosts, allow_changes)
        on_ready(url if shared is None or password else f"{url}login?token={secret}")
        tasks.create_task(_end_overdue(sessions))

        def end_sessions() -> None:
            sessions.clear()
            if shared is not None:
                shared.end()

        await _until_cancelled(_server(console), listener, end_sessions)


async def _shared_clients(
    servers: str, options: Mapping[str, Any], *, user_login: bool
) -> Clients | None:
    """The clients of all sessions, started; None where each user has clients of its own."""
    has_user = any(options.get(each) for each in login.IDENTITY)
    if has_user and not user_login:
        clients = Clients(servers, options)
        await clients.start()
        return clients
    clients = Clients(servers, login.without_identity(options))
    try:
        await clients.start()
    except AuthenticationFailed:
        return None
    if not user_login:
        return clients
    await clients.admin.close()
    raise ConfigError(
        "--user-login: the brokers ask for no password at this address; name the address of "
        "a listener with SASL, or leave the flag out"
    )


async def _end_overdue(sessions: Sessions) -> None:
    while True:
        await asyncio.sleep(_OVERDUE_INTERVAL_S)
        sessions.end_overdue(time.monotonic())


def _server(console: Console) -> _Server:
    return _Server(
        uvicorn.Config(
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
    )


async def _until_cancelled(
    server: _Server, listener: socket.socket, end_sessions: Callable[[], None]
) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.wait([serving])
    finally:
        server.should_exit = True
        # The server waits for its responses, and a tail would not end by itself.
        end_sessions()
        await asyncio.wait([serving])
    serving.result()
