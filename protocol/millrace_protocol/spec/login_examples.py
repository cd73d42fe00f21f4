"""Frames of a login: the exchange of RFC 7677 §3, for the user `user` with the password `pencil`.

They are made, not captured: a broker draws another nonce for each login.
"""

from __future__ import annotations

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import encode
from millrace_protocol.framing import request_frame, response_frame
from millrace_protocol.messages.authenticate import AuthenticateRequest, AuthenticateResponse

_NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SCRAM_MESSAGES = {
    "client-first": b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "server-first": f"r={_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
    "client-final": f"c=biws,r={_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode(),
    "server-final": b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
}
_STEPS = (
    ("authenticate", "client-first", "server-first", False),
    ("authenticate-final", "client-final", "server-final", True),
)


def _frames() -> dict[str, bytes]:
    frames = {}
    version = APIS[ApiKey.AUTHENTICATE].max_version
    for number, (name, sent, received, is_complete) in enumerate(_STEPS, 2):
        ids = {"api": ApiKey.AUTHENTICATE, "version": version, "correlation_id": number}
        request = AuthenticateRequest("SCRAM-SHA-256", SCRAM_MESSAGES[sent])
        response = AuthenticateResponse(SCRAM_MESSAGES[received], is_complete, 0)
        frames[f"{name}-request"] = request_frame(
            **ids, client_id=b"shop", body=encode(request, version)
        )
        frames[f"{name}-response"] = response_frame(**ids, body=encode(response, version))
    return frames


LOGIN_EXAMPLES = _frames()
"""Whole frames by name."""
