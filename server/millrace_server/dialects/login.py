"""What a session tells the services of its connection, before and without an authentication."""

from __future__ import annotations

from typing import TypedDict

from millrace_server.net.dialect import Peer
from millrace_server.services.request_context import SaslState


class PeerFields(TypedDict):
    """Fields of `RequestContext` that the connection decides."""

    client_host: str
    principal: str
    listener: str
    sasl: SaslState | None
    is_authenticated: bool


def context_of(connection: Peer) -> PeerFields:
    """The fields of the context of a new connection: not authenticated where it has SASL."""
    listener = connection.listener
    return PeerFields(
        client_host=connection.peer,
        principal=connection.principal,
        listener=listener.name,
        sasl=SaslState(has_tls=listener.is_tls) if listener.is_sasl else None,
        is_authenticated=not listener.is_sasl,
    )
