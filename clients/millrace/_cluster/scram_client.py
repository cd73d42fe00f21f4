"""SCRAM at the client: the state machine of RFC 5802 §3, §5.

first() --> client-first        server-first --> final() --> client-final
                                server-final --> check(): the broker knows the password too
"""

from __future__ import annotations

import hmac
from base64 import b64encode

from millrace_protocol.scram import (
    CHANNEL_BINDING,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramError,
    ScramMechanism,
    attributes,
    client_key,
    credential_of,
    decode_base64,
    escape_name,
    exclusive_or,
    salt_password,
    signature,
)

SaltedPasswords = dict[tuple[bytes, int], bytes]
"""By salt and iterations: salting takes milliseconds, and a client connects to many brokers."""


class ScramClient:
    """One exchange. `nonce` is the client's part: printable, random, for this exchange alone.

    `salted` is kept from one exchange of a user to the next. The methods raise `ScramError`.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        *,
        nonce: str,
        salted: SaltedPasswords,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._salted = salted
        self._first_bare = f"n={escape_name(user)},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The message with the proof, in answer to the broker's first one."""
        text = _text(server_first)
        nonce, salt_text, iterations_text = attributes(text, "rsi")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the nonce does not begin with that of the client")
        if not iterations_text.isascii() or not iterations_text.isdigit():
            raise ScramError("the number of iterations is none")
        iterations = int(iterations_text[:9])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(
                f"{iterations} iterations; this client does {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        salt = decode_base64(salt_text)
        salted_password = self._salted_password(salt, iterations)
        credential = credential_of(self._mechanism, salted_password, salt, iterations)
        without_proof = f"c={CHANNEL_BINDING},r={nonce}"
        auth_message = f"{self._first_bare},{text},{without_proof}".encode()
        self._server_signature = signature(self._mechanism, credential.server_key, auth_message)
        client_signature = signature(self._mechanism, credential.stored_key, auth_message)
        proof = exclusive_or(client_key(self._mechanism, salted_password), client_signature)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Raises where the broker has not proved that it knows the password's keys."""
        (verifier,) = attributes(_text(server_final), "v")
        if not hmac.compare_digest(decode_base64(verifier), self._server_signature):
            raise ScramError("the signature is wrong: the peer is not the broker that has the user")

    def _salted_password(self, salt: bytes, iterations: int) -> bytes:
        known = self._salted.get((salt, iterations))
        if known is None:
            known = salt_password(self._mechanism, self._password, salt, iterations)
            # One user has one salt: another one means that the password was set anew.
            self._salted.clear()
            self._salted[salt, iterations] = known
        return known


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message is not UTF-8") from None
