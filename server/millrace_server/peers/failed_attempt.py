"""What a failed attempt to connect to another broker means, and what an operator can do.

Pure. Only the side that ends a handshake knows why. The other one sees the connection end, and
guesses.
"""

from __future__ import annotations

import ssl

from millrace_server.peers.calls import PeerNotListening, PeerUnreachable, PeerUntrusted
from millrace_wire.errors import ConnectionLost, RequestFailed

_ON_ALL = "set broker_tls_certificate and broker_tls_ca on all brokers or on none"


def failed_attempt(error: RequestFailed, broker_id: int, *, has_tls: bool) -> PeerUnreachable:
    """The error of callers. `has_tls`: whether this broker uses TLS with others."""
    cause = error.__cause__
    if isinstance(cause, ConnectionRefusedError):
        return PeerNotListening(str(error))
    if isinstance(cause, ssl.SSLCertVerificationError):
        return PeerUntrusted(
            f"{error}; correct broker_tls_certificate of broker {broker_id}, or broker_tls_ca here"
        )
    if isinstance(cause, ssl.SSLError):
        return PeerUntrusted(f"{error}; {_ON_ALL}")
    if not isinstance(cause, ConnectionLost | ConnectionResetError):
        return PeerUnreachable(str(error))
    ended = f"broker {broker_id} ended the connection before Hello"
    if has_tls:
        return PeerUntrusted(
            f"{ended}; if it does not trust this broker's certificate, its log says why"
        )
    return PeerUntrusted(f"{ended}; if it has TLS, {_ON_ALL}")
