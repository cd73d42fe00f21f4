"""Logins: who is let in, and whose clients the session has.

    console   one secret for all; every session has the clients of the console's process
    brokers   a user of the brokers, whose password they check; the session has the user's rights

Owns both. A failed login says nothing else than that it failed.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from typing import Any, Protocol

from millrace.errors import AuthenticationFailed, ConfigError
from millrace_console.clients import Clients

USER_BYTES_MAX = 255
IDLE_S = 15 * 60
"""A session with clients of its own ends after so long without a request or an open tail."""
USER_SESSIONS_MAX = 20
"""Each reads the cluster for itself."""
IDENTITY = ("username", "password", "token")


class Login(Protocol):
    """How users log in. `page` is the form, `refusal` the answer to a wrong one."""

    page: str
    refusal: str

    async def clients_of(self, name: str, secret: str) -> Clients | None:
        """The clients of a session, None where the user is not let in."""
        ...


class ConsoleLogin:
    """One secret for all users: the content of a file, or a token made at the start."""

    page = "login.html"
    refusal = "That is not the password or token of this console."

    def __init__(self, secret: str, clients: Clients) -> None:
        self._secret = secret
        self._clients = clients

    async def clients_of(self, name: str, secret: str) -> Clients | None:
        """Compares in a time that does not depend on where the texts differ."""
        is_same = hmac.compare_digest(secret.encode(), self._secret.encode())
        return self._clients if is_same else None


class BrokerLogin:
    """The users of the brokers. `tasks` runs the clients that it makes."""

    page = "login-user.html"
    refusal = "The name or the password is wrong."

    def __init__(self, servers: str, options: Mapping[str, Any], tasks: asyncio.TaskGroup) -> None:
        self._servers = servers
        self._options = without_identity(options)
        self._tasks = tasks

    async def clients_of(self, name: str, secret: str) -> Clients | None:
        """Logs in to a broker. Raises `MillraceError` where none answers."""
        if not name or not secret or len(name.encode()) > USER_BYTES_MAX:
            return None
        try:
            clients = Clients(
                self._servers, {**self._options, "username": name, "password": secret}
            )
            await clients.start()
        except (AuthenticationFailed, ConfigError):
            return None
        clients.run_in(self._tasks)
        return clients


def without_identity(options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a client without a user."""
    return {name: value for name, value in options.items() if name not in IDENTITY}
