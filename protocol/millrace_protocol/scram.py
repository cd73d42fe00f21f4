"""SCRAM: mechanisms, keys, and the attributes of messages (RFC 5802, RFC 7677, KIP-554).

Owns what the two sides have in common. The state machines are `millrace_server.authentication`'s
and the clients'. As in Kafka, and unlike RFC 5802, names and passwords are UTF-8 as they are given:
SASLprep is not applied, because Kafka's clients do not apply it either.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from enum import IntEnum

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
"""Kafka's bounds of the iteration count."""
SALT_BYTES = 32
"""Size of the salts that millrace makes."""
CHANNEL_BINDING = "biws"
"""The gs2 header `n,,` in base64: no channel binding, and no name to act for."""
_PRINTABLE_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")


class ScramMechanism(IntEnum):
    """A mechanism, with Kafka's number."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """`SCRAM-SHA-256`"""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash as `hashlib` names it: `sha256`."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()

    @property
    def key_bytes(self) -> int:
        """Size of its keys and of its salted passwords."""
        return hashlib.new(self.hash_name).digest_size


SCRAM_MECHANISMS = {each.sasl_name: each for each in ScramMechanism}
"""By the name in SASL."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker knows of a user's password: enough to check a proof, not to make one."""

    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramError(Exception):
    """A message breaks RFC 5802; the text says how."""


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password. Takes 1 ms for each thousand iterations, without the interpreter.

    >>> salted = salt_password(ScramMechanism.SCRAM_SHA_256, "pencil", b"salt", 4096)
    >>> len(salted)
    32
    """
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What a broker keeps of a salted password."""
    stored_key = hashlib.new(mechanism.hash_name, client_key(mechanism, salted_password)).digest()
    server_key = signature(mechanism, salted_password, b"Server Key")
    return ScramCredential(mechanism, salt, stored_key, server_key, iterations)


def client_key(mechanism: ScramMechanism, salted_password: bytes) -> bytes:
    """The key whose knowledge a client proves."""
    return signature(mechanism, salted_password, b"Client Key")


def signature(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """HMAC with the hash of the mechanism."""
    return hmac.digest(key, message, mechanism.hash_name)


def exclusive_or(left: bytes, right: bytes) -> bytes:
    """Of two values of one size: a client's proof is its key and its signature."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def escape_name(name: str) -> str:
    """A name as it stands in a message.

    >>> escape_name("a,b=c")
    'a=2Cb=3Dc'
    """
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(text: str) -> str:
    """The name in a message. Raises `ScramError`."""
    if re.search(r"=(?!2C|3D)", text):
        raise ScramError("'=' in a name is written =3D, and ',' is written =2C")
    return text.replace("=2C", ",").replace("=3D", "=")


def attributes(message: str, names: str) -> list[str]:
    """The values of attributes that must stand first, in this order; extensions may follow.

    >>> attributes("r=abc,s=QSXCR+Q6,i=4096", "rsi")
    ['abc', 'QSXCR+Q6', '4096']
    """
    parts = message.split(",")
    if len(parts) < len(names):
        raise ScramError(f"a message has the attributes {', '.join(names)}")
    for part, name in zip(parts, names, strict=False):
        if not part.startswith(f"{name}="):
            raise ScramError(f"attribute {name}= is missing, or not in its place")
    return [part[2:] for part in parts[: len(names)]]


def decode_base64(text: str) -> bytes:
    """The bytes that an attribute stands for.

    Raises `ScramError` for all but the one text that stands for them: most decoders ignore the bits
    behind the last byte, so that several texts would be the same proof (RFC 4648 section 3.5).
    """
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("an attribute is not base64") from None
    if b64encode(data).decode() != text:
        raise ScramError("an attribute is not base64: bits are set behind its last byte")
    return data


def check_nonce(nonce: str) -> None:
    """Raises `ScramError` where a nonce has other characters than the printable ones, or none."""
    if not _PRINTABLE_NONCE.fullmatch(nonce):
        raise ScramError("a nonce is printable ASCII characters without a comma")
