"""Why a TLS handshake has failed, in words, for the side that has found out."""

from __future__ import annotations

import ssl
from typing import Final

_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}
)
"""What OpenSSL says of bytes that are no record of TLS."""


def tls_failure(error: ssl.SSLError) -> str:
    """What is wrong with the peer: "its certificate is refused: certificate has expired"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if error.reason in _NO_TLS:
        return "it does not speak TLS"
    what = (error.reason or str(error)).lower().replace("_", " ")
    return f"the TLS handshake failed: {what}"
