"""Where a request comes from, in plain values."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.listeners import PLAIN
from millrace_server.principal import ANONYMOUS


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
