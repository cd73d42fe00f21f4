"""Where a request comes from, in plain values."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.authentication.exchange import Exchange
from millrace_server.listeners import PLAIN
from millrace_server.principal import ANONYMOUS


@dataclass(slots=True)
class SaslState:
    """How far the authentication of one connection is; `services.authentication` writes it."""

    has_tls: bool
    exchange: Exchange | None = None
    """The one in progress."""
    is_busy: bool = False
    """A step of it is being taken."""
    session_end_ms: int | None = None
    """Monotonic: the client must authenticate again before; None for a session without an end."""
    is_refused: bool = False
    """The connection ends with the response to the request at hand."""


@dataclass(slots=True)
class RequestContext:
    """One connection as the services know it; `client_id` is that of the request at hand."""

    client_host: str
    """Address and port of the peer."""
    principal: str = ANONYMOUS
    client_id: str = ""
    listener: str = PLAIN
    """The name of the listener that the peer has connected to."""
    broker_id: int | None = None
    """The broker at the other end, after its BrokerHello; None for clients."""
    fetch_session: object | None = None
    """What the broker at the other end fetches: `services.replica_fetch.FollowerSession`."""
    parked_fetches: int = 0
    """Fetches of the connection that wait for more to read."""
    sasl: SaslState | None = None
    """None on a listener without SASL."""
    is_authenticated: bool = True
    """False on a listener with SASL until the client has authenticated."""

    def authenticate(self, principal: str) -> None:
        """The client has proved that it is `principal`."""
        self.principal = principal
        self.is_authenticated = True
