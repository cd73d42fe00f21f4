"""Who may ask the console what: hosts, origins, sessions.

Owns the decisions. Knows no HTTP library, no clock and no randomness: the caller passes them.

    Host     an IP address, localhost, or a name that the operator allowed. A page of another site
             that points its own name at this address (DNS rebinding) has another Host.
    Origin   of every request that changes something: the address that the request was sent to
    session  a cookie that the browser sends to this site only, and a token that such a request
             carries in a header, which a page of another site cannot read
    login    a bound on the failures of each address
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
FAILURES_MAX = 10
FAILURES_S = 60
"""An address may fail so often in so long."""
ADDRESSES_MAX = 1_000
"""The failures of the address that failed longest ago are forgotten when there is one more."""


class Clients(Protocol):
    """What a session acts with."""

    @property
    def is_busy(self) -> bool:
        """Whether it works without requests of the page."""
        ...

    def end(self) -> None:
        """The last session has ended that acts with it."""
        ...


@dataclass(slots=True)
class Session:
    """One user who has logged in, until `ends_s`."""

    csrf_token: str
    clients: Clients
    ends_s: float
    used_s: float
    has_ended: bool = False


class Sessions:
    """The sessions by the value of their cookies; at most `count_max`, the oldest gives way.

    With `idle_s` each session has clients of its own. It ends when it is idle for so long, and its
    clients with it.
    """

    def __init__(self, *, count_max: int = SESSIONS_MAX, idle_s: float | None = None) -> None:
        self._found: OrderedDict[str, Session] = OrderedDict()
        self._count_max = count_max
        self._idle_s = idle_s

    def add(self, cookie: str, csrf_token: str, clients: Clients, now_s: float) -> None:
        """A user has logged in."""
        self._found[cookie] = Session(csrf_token, clients, now_s + SESSION_S, now_s)
        while len(self._found) > self._count_max:
            self.remove(next(iter(self._found)))

    def find(self, cookie: str, now_s: float) -> Session | None:
        """The session of a cookie, unless it has ended; it is not idle."""
        self.end_overdue(now_s)
        session = self._found.get(cookie)
        if session is not None:
            session.used_s = now_s
        return session

    def end_overdue(self, now_s: float) -> None:
        """Ends what has lasted too long, or is idle."""
        for cookie, session in list(self._found.items()):
            if session.clients.is_busy:
                session.used_s = now_s
            is_idle = self._idle_s is not None and session.used_s + self._idle_s <= now_s
            if is_idle or session.ends_s <= now_s:
                self.remove(cookie)

    def remove(self, cookie: str) -> None:
        """The user has logged out."""
        session = self._found.pop(cookie, None)
        if session is None:
            return
        session.has_ended = True
        if self._idle_s is not None:
            session.clients.end()

    def clear(self) -> None:
        """Ends all of them."""
        for cookie in list(self._found):
            self.remove(cookie)


class LoginAttempts:
    """The logins of each address that have failed in the last `FAILURES_S`.

    An attempt counts as a failure until it has succeeded: many at once are as many failures.
    """

    def __init__(self) -> None:
        self._failed_s: OrderedDict[str, list[float]] = OrderedDict()

    def may_try(self, host: str, now_s: float) -> bool:
        """Whether an address may try once more; then the attempt is noted."""
        address = _attempting(host)
        recent = [at for at in self._failed_s.get(address, ()) if at > now_s - FAILURES_S]
        if len(recent) >= FAILURES_MAX:
            return False
        self._failed_s[address] = [*recent, now_s]
        self._failed_s.move_to_end(address)
        while len(self._failed_s) > ADDRESSES_MAX:
            self._failed_s.popitem(last=False)
        return True

    def succeeded(self, host: str) -> None:
        """The newest attempt of the address does not count. Those before it do: a user could
        guess at the name of another one without end otherwise."""
        attempts = self._failed_s.get(_attempting(host))
        if attempts:
            attempts.pop()


def _attempting(host: str) -> str:
    """The address that failures are counted for: one user has a network of 64 bits in IPv6.

    >>> _attempting("192.0.2.1"), _attempting("2001:db8::1:2")
    ('192.0.2.1', '2001:db8::/64')
    """
    if is_address(host) and ":" in host:
        return str(ipaddress.ip_network((host, 64), strict=False))
    return host


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
