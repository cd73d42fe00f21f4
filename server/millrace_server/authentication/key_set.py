"""A set of JSON web keys, and the check of a token with one of them (RFC 7517, RFC 7518, RFC 8725).

Owns which key checks which token. The token says how it was signed, and the kind of its key says
which algorithms that may be. A secret (`kty` oct) is no key: who checks with it can sign with it.
Refuses to know where a set comes from. PyJWT is imported late, because most brokers do without.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from millrace_server.api_error import quoted
from millrace_server.authentication.oauthbearer import TokenRefused

_MEMBERS: Mapping[str, Sequence[str]] = {
    "RSA": ("n", "e"),
    "EC": ("crv", "x", "y"),
    "OKP": ("crv", "x"),
}
"""The public members of a key of each kind (`kty`)."""
_ALGORITHMS: Mapping[tuple[str, str | None], Sequence[str]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""What tokens may be signed with, by the kind of the key and its curve."""
ALGORITHMS = frozenset[str]().union(*_ALGORITHMS.values())
"""Signatures that only the issuer can make: neither `none` nor one with a secret (HS256)."""
RSA_BITS_MIN = 2048
"""RFC 7518 §3.3."""
RSA_BITS_MAX = 16_384
_MEMBER_CHARACTERS_MAX = 4096
"""Of a part of a key; the modulus of the longest key has 2,731."""
_EXPONENT_CHARACTERS_MAX = 16
"""A longer exponent makes a check cost as much as a signature; it is 65,537 as a rule (AQAB)."""
_REASONS_SHOWN = 3


class KeySetError(Exception):
    """The text is no set of keys, or one without use. The message goes on after its source."""


class TokenHeader(NamedTuple):
    """What a token says of its signature, before the check."""

    algorithm: str
    """One of `ALGORITHMS`."""
    key_name: str | None


class IssuerKey(NamedTuple):
    """A public key, and what tokens that it checks may be signed with."""

    name: str | None
    public_key: Any
    algorithms: Sequence[str]


class _Unusable(Exception):
    """A key that checks no token; the message goes on after its name."""


class KeySet:
    """The keys of an issuer with which tokens can be checked, no two of one name."""

    def __init__(self, keys: Sequence[IssuerKey]) -> None:
        self._keys = keys
        self._named = {each.name: each for each in keys if each.name is not None}

    def find(self, header: TokenHeader) -> IssuerKey | None:
        """The key that a token names, or the only one with its algorithm where it names none.

        Raises `TokenRefused` when another set would not help either.
        """
        algorithm = header.algorithm
        if header.key_name is not None:
            key = self._named.get(header.key_name)
            if key is not None and algorithm not in key.algorithms:
                raise TokenRefused(f"its algorithm {algorithm} is not one of its key")
            return key
        fitting = [each for each in self._keys if algorithm in each.algorithms]
        if len(fitting) > 1:
            raise TokenRefused(f"it names no key (kid), and several could have signed {algorithm}")
        return fitting[0] if fitting else None


def parse_key_set(text: str) -> KeySet:
    """The keys that can check a token; others, for example for encryption, are left out.

    Raises `KeySetError`.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KeySetError(f"has no set of keys: it is no JSON: {error}") from None
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        raise KeySetError('has no set of keys: it is no JSON object with a list "keys"')
    keys: dict[object, IssuerKey] = {}
    reasons = []
    for number, member in enumerate(members):
        try:
            key = _key(member)
        except _Unusable as unusable:
            reasons.append(f"key {number} {unusable}")
            continue
        if key.name in keys:
            raise KeySetError(f"has several keys that are named {quoted(key.name or '')}")
        keys[number if key.name is None else key.name] = key
    if not keys:
        shown = "; ".join(reasons[:_REASONS_SHOWN]) or "it is empty"
        raise KeySetError(f"has no set of keys that can check a token: {shown}")
    return KeySet(list(keys.values()))


def header_of(token: str) -> TokenHeader:
    """What a token says of its signature. Raises `TokenRefused`."""
    encoded, _, _ = token.partition(".")
    try:
        header = json.loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, RecursionError):
        raise TokenRefused("it is no token: its header is no JSON in base64") from None
    if not isinstance(header, dict):
        raise TokenRefused("it is no token: its header is no JSON object")
    algorithm, key_name = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        shown = quoted(algorithm) if isinstance(algorithm, str) else "missing"
        raise TokenRefused(f"its algorithm is {shown}, and is not one that proves the issuer")
    if key_name is not None and not isinstance(key_name, str):
        raise TokenRefused("it is no token: the name of its key (kid) is no text")
    return TokenHeader(algorithm, key_name)


def claims_of(token: str, key: IssuerKey, algorithm: str) -> Mapping[str, Any]:
    """What a token says, when `key` has signed it with `algorithm`. Raises `TokenRefused`.

    It takes some hundred microseconds, and is work for a worker thread.
    """
    import jwt

    signatures = jwt.PyJWS(algorithms=[algorithm])
    try:
        payload = signatures.decode(token, key.public_key, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise TokenRefused(f"its signature is not right: {error}") from None
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        raise TokenRefused("its claims are no JSON") from None
    if not isinstance(claims, dict):
        raise TokenRefused("its claims are no JSON object")
    return claims


def _key(member: object) -> IssuerKey:
    if not isinstance(member, dict):
        raise _Unusable("is no JSON object")
    name, kind = member.get("kid"), member.get("kty")
    if name is not None and not isinstance(name, str):
        raise _Unusable("has a name (kid) that is no text")
    if not isinstance(kind, str):
        raise _Unusable("has no kind (kty)")
    if member.get("use", "sig") != "sig":
        raise _Unusable("is not for signatures (use)")
    operations = member.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise _Unusable("is not for checking signatures (key_ops)")
    members = _MEMBERS.get(kind)
    if members is None:
        raise _Unusable("is a secret (kty oct)" if kind == "oct" else "is of no known kind (kty)")
    # Only public members: of a private key, which should not be there, the public half.
    public = {each: _text(member, each) for each in members}
    algorithms = _ALGORITHMS.get((kind, public.get("crv")))
    if algorithms is None:
        raise _Unusable("is of no known curve (crv)")
    if "alg" in member:
        algorithms = [each for each in algorithms if each == member["alg"]]
        if not algorithms:
            raise _Unusable("is for an algorithm that does not fit (alg)")
    return IssuerKey(name, _public_key(kind, public), algorithms)


def _text(member: Mapping[str, Any], name: str) -> str:
    value = member.get(name)
    longest = _EXPONENT_CHARACTERS_MAX if name == "e" else _MEMBER_CHARACTERS_MAX
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise _Unusable(f"has no {name}, or one that is too long")
    return value


def _public_key(kind: str, members: Mapping[str, str]) -> Any:
    import jwt
    from cryptography.exceptions import UnsupportedAlgorithm

    readers: Mapping[str, Any] = {
        "RSA": jwt.algorithms.RSAAlgorithm,
        "EC": jwt.algorithms.ECAlgorithm,
        "OKP": jwt.algorithms.OKPAlgorithm,
    }
    try:
        key: Any = readers[kind].from_jwk({"kty": kind, **members})
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _Unusable(f"cannot be used: {error}") from None
    if kind == "RSA" and not RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
        raise _Unusable(
            f"has {key.key_size} bits; a key of RSA has {RSA_BITS_MIN} to {RSA_BITS_MAX}"
        )
    return key
