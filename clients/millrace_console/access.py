"""Who may ask the console what: hosts, origins, sessions.

Owns the decisions. Knows no HTTP library, no clock and no randomness: the caller passes them.

    Host     an IP address, localhost, or a name that the operator allowed. A page of another site
             that points its own name at this address (DNS rebinding) has another Host.
    Origin   of every request that changes something: the address that the request was sent to
    session  a cookie that the browser sends to this site only, and a token that such a request
             carries in a header, which a page of another site cannot read
"""

from __future__ import annotations

import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

SESSIONS_MAX = 100
"""The oldest session ends when there is one more."""
SESSION_S = 12 * 3600


class Authenticator(Protocol):
    """Says whether what a user typed lets the user in. A login at a broker would be another one."""

    async def accepts(self, secret: str) -> bool:
        """Whether the user may use the console."""
        ...


@dataclass(frozen=True, slots=True)
class SecretAuthenticator:
    """One secret for all users: the content of a file, or a token made at the start."""

    secret: str

    async def accepts(self, secret: str) -> bool:
        """Compares in a time that does not depend on where the texts differ."""
        return hmac.compare_digest(secret.encode(), self.secret.encode())


@dataclass(frozen=True, slots=True)
class Session:
    """One user who has logged in, until `ends_s`."""

    csrf_token: str
    ends_s: float


class Sessions:
    """The sessions by the value of their cookies; at most `SESSIONS_MAX`."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Session] = OrderedDict()

    def add(self, cookie: str, csrf_token: str, now_s: float) -> None:
        """A user has logged in."""
        self._found[cookie] = Session(csrf_token, now_s + SESSION_S)
        while len(self._found) > SESSIONS_MAX:
            self._found.popitem(last=False)

    def find(self, cookie: str, now_s: float) -> Session | None:
        """The session of a cookie, unless it has ended."""
        session = self._found.get(cookie)
        if session is not None and session.ends_s <= now_s:
            del self._found[cookie]
            return None
        return session

    def remove(self, cookie: str) -> None:
        """The user has logged out."""
        self._found.pop(cookie, None)


def is_allowed_host(header: str, names: Collection[str]) -> bool:
    """Whether a `Host` header is an IP address, localhost, or one of `names`; the port is free.

    >>> is_allowed_host("127.0.0.1:8080", ()), is_allowed_host("[::1]", ())
    (True, True)
    >>> is_allowed_host("evil.example", ()), is_allowed_host("ops.example:80", {"ops.example"})
    (False, True)
    """
    try:
        host = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    return host == "localhost" or host in names or is_address(host)


def is_address(host: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_same_origin(origin: str, host: str) -> bool:
    """Whether an `Origin` header names the host that a request was sent to.

    The scheme is left out: a proxy in front may speak TLS.

    >>> is_same_origin("http://localhost:8080", "localhost:8080"), is_same_origin("null", "a")
    (True, False)
    """
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def is_same_token(given: str, session: Session) -> bool:
    """Whether a request carries the token of its session."""
    return hmac.compare_digest(given.encode(), session.csrf_token.encode())
