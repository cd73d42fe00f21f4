"""PLAIN: the name and the password in one message (RFC 4616), for connections with TLS.

The broker has no password to compare with. It salts the one it is given as SCRAM does, which takes
milliseconds, and compares the keys.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial

from millrace_protocol.scram import ScramCredential, credential_of, salt_password
from millrace_server.authentication.exchange import (
    Accepted,
    SaslFailed,
    Work,
    invalid_credentials,
)

PLAIN = "PLAIN"
PLAIN_BYTES_MAX = 4 << 10
"""Longest message: two names and a password."""


class PlainExchange:
    """One exchange: one message. `find_credential` gives one for every name, known or not."""

    mechanism = PLAIN

    def __init__(self, find_credential: Callable[[str], ScramCredential]) -> None:
        self._find_credential: Callable[[str], ScramCredential] | None = find_credential

    def step(self, message: bytes) -> Work:
        """See `Exchange`: `[authzid] NUL authcid NUL passwd`."""
        find, self._find_credential = self._find_credential, None
        if find is None:
            raise SaslFailed("The exchange of PLAIN has ended")
        user, password = _parse(message)
        return partial(_verify, user, password, find(user))


def _verify(user: str, password: str, credential: ScramCredential) -> Accepted:
    mechanism = credential.mechanism
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    given = credential_of(mechanism, salted, credential.salt, credential.iterations)
    if not hmac.compare_digest(given.stored_key, credential.stored_key):
        raise invalid_credentials(PLAIN, user)
    return Accepted(user)


def _parse(message: bytes) -> tuple[str, str]:
    """Name and password. Raises `SaslFailed`."""
    if len(message) > PLAIN_BYTES_MAX:
        raise SaslFailed(f"A message of PLAIN has at most {PLAIN_BYTES_MAX} bytes")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise SaslFailed("The message of PLAIN is not UTF-8") from None
    if len(parts) != 3:
        raise SaslFailed("A message of PLAIN is [authzid] NUL name NUL password")
    authorized, user, password = parts
    if not user or not password:
        raise SaslFailed("A message of PLAIN has a name and a password", user=user)
    if authorized not in ("", user):
        raise SaslFailed("A user may act for itself only", user=user)
    return user, password
