"""SCRAM at the broker: the state machine of RFC 5802 §3, §5 (RFC 7677 for SHA-256).

    FIRST --client-first / server-first--> FINAL --client-final / server-final--> ENDED
      |                                      |
      +-- any failure --> ENDED              +-- any failure --> ENDED

A user that there is not goes the same way as a wrong password, and fails at the same step. There is
no channel binding.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable

from millrace_protocol.scram import (
    ScramCredential,
    ScramError,
    ScramMechanism,
    attributes,
    check_nonce,
    decode_base64,
    exclusive_or,
    signature,
    unescape_name,
)
from millrace_server.authentication.exchange import (
    Accepted,
    Challenge,
    SaslFailed,
    Step,
    invalid_credentials,
)

SCRAM_BYTES_MAX = 4 << 10
"""Longest message: name, nonce and proof have some hundred bytes."""


class _State(enum.Enum):
    FIRST = enum.auto()
    FINAL = enum.auto()
    ENDED = enum.auto()


class ScramExchange:
    """One exchange. `find_credential` gives a credential for every name, known or not.

    `nonce` is the broker's part of the nonce: printable, random, for this exchange alone.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find_credential: Callable[[str], ScramCredential],
        nonce: str,
    ) -> None:
        self.mechanism = mechanism.sasl_name
        self._mechanism = mechanism
        self._find_credential = find_credential
        self._own_nonce = nonce
        self._state = _State.FIRST
        self._user = ""
        self._gs2_header = ""
        self._nonce = ""
        self._auth_message = ""
        self._credential: ScramCredential | None = None

    def step(self, message: bytes) -> Step:
        """See `Exchange`."""
        state, self._state = self._state, _State.ENDED
        try:
            text = _text(message)
            match state:
                case _State.FIRST:
                    answer = self._first(text)
                    self._state = _State.FINAL
                    return answer
                case _State.FINAL:
                    return self._final(text)
                case _State.ENDED:
                    raise ScramError("the exchange has ended")
        except ScramError as error:
            raise SaslFailed(
                f"The message of {self.mechanism} is malformed: {error}", user=self._user
            ) from None

    def _first(self, text: str) -> Challenge:
        """gs2-header client-first-message-bare (§7): `n,,n=user,r=nonce`."""
        flag, authorized, bare = _split_header(text)
        if flag not in ("n", "y"):
            raise ScramError("there is no channel binding; begin with 'n,,'")
        name, nonce = attributes(bare, "nr")
        self._user = unescape_name(name)
        if not self._user:
            raise ScramError("the name is empty")
        if authorized not in ("", f"a={name}"):
            raise SaslFailed("A user may act for itself only", user=self._user)
        check_nonce(nonce)
        self._gs2_header = f"{flag},{authorized},"
        self._nonce = nonce + self._own_nonce
        credential = self._credential = self._find_credential(self._user)
        salt = b64encode(credential.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._auth_message = f"{bare},{server_first}"
        return Challenge(server_first.encode())

    def _final(self, text: str) -> Accepted:
        """`c=biws,r=nonce,p=proof`; the proof is the last attribute."""
        credential = self._credential
        assert credential is not None
        without_proof, separator, proof_text = text.rpartition(",p=")
        if not separator:
            raise ScramError("attribute p= is missing")
        binding, nonce = attributes(without_proof, "cr")
        if decode_base64(binding) != self._gs2_header.encode():
            raise ScramError("attribute c= is not the header of the first message")
        proof = decode_base64(proof_text)
        if len(proof) != self._mechanism.key_bytes:
            raise ScramError(f"a proof has {self._mechanism.key_bytes} bytes")
        auth_message = f"{self._auth_message},{without_proof}".encode()
        client_signature = signature(self._mechanism, credential.stored_key, auth_message)
        client_key = exclusive_or(proof, client_signature)
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        is_proved = hmac.compare_digest(stored_key, credential.stored_key)
        # librdkafka sends its own nonce once more before it until 2.6.1, and Kafka takes that too.
        # As bytes: text that is compared so has to be ASCII.
        sent = nonce[-len(self._nonce) :].encode()
        is_of_exchange = hmac.compare_digest(sent, self._nonce.encode())
        if not (is_of_exchange and is_proved):
            raise invalid_credentials(self.mechanism, self._user)
        server_signature = signature(self._mechanism, credential.server_key, auth_message)
        return Accepted(self._user, b"v=" + b64encode(server_signature))


def _text(message: bytes) -> str:
    if len(message) > SCRAM_BYTES_MAX:
        raise ScramError(f"it has {len(message)} bytes, and may have {SCRAM_BYTES_MAX}")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("it is not UTF-8") from None


def _split_header(text: str) -> tuple[str, str, str]:
    parts = text.split(",", 2)
    if len(parts) < 3:
        raise ScramError("it begins with 'n,,'")
    flag, authorized, bare = parts
    return flag, authorized, bare
