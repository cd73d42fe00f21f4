"""What a session tells the services of its connection, before and without an authentication."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from millrace_server.net.dialect import Peer
from millrace_server.services.authorizer import Authorizer
from millrace_server.services.request_context import SaslState


class PeerFields(TypedDict):
    """Fields of `RequestContext` that the connection decides."""

    client_host: str
    authorizer: Authorizer | None
    principal: str
    listener: str
    sasl: SaslState | None
    is_authenticated: bool
    hold_back: Callable[[int], None] | None
    admit: Callable[[str], str]


def context_of(
    connection: Peer, authorizer: Authorizer | None, *, has_quotas: bool = True
) -> PeerFields:
    """The fields of the context of a new connection: not authenticated where it has SASL."""
    listener = connection.listener
    return PeerFields(
        client_host=connection.peer,
        authorizer=authorizer if authorizer is not None and authorizer.is_on else None,
        principal=connection.principal,
        listener=listener.name,
        sasl=SaslState(has_tls=listener.is_tls) if listener.is_sasl else None,
        is_authenticated=not listener.is_sasl,
        hold_back=connection.hold_back if has_quotas else None,
        admit=connection.admit,
    )
