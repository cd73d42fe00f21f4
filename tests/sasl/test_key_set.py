"""A set of keys: which of them are used, and which token each can check."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace_server.authentication.key_set import (
    KeySet,
    KeySetError,
    claims_of,
    header_of,
    parse_key_set,
)
from millrace_server.authentication.oauthbearer import TokenRefused
from tests.sasl.issuer import Issuer

RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
SECRET = {"kty": "oct", "kid": "secret", "k": "c2VjcmV0" * 8}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def set_of(*members: object) -> KeySet:
    return parse_key_set(json.dumps({"keys": members}))


def without(jwk: Mapping[str, Any], *names: str, **changes: Any) -> dict[str, Any]:
    """A key without some of its members, and with others."""
    return {**{name: each for name, each in jwk.items() if name not in names}, **changes}


def claims(keys: KeySet, token: str) -> Mapping[str, Any]:
    """What a token says, if one of the keys checks it."""
    header = header_of(token)
    key = keys.find(header)
    if key is None:
        raise TokenRefused("no key")
    return claims_of(token, key, header.algorithm)


# Algorithms


@pytest.mark.parametrize("algorithm", RSA)
def test_a_key_of_rsa_checks_what_the_token_says_it_was_signed_with(
    issuer: Issuer, algorithm: str
) -> None:
    """RFC 7517 §4.4: `alg` is optional. Where a key has it, it is for nothing else."""
    token = issuer.signed({"sub": "ada"}, {"kid": "first"}, algorithm)
    assert claims(set_of(without(issuer.jwk, "alg")), token) == {"sub": "ada"}
    assert claims(set_of(without(issuer.jwk, alg=algorithm)), token) == {"sub": "ada"}
    (other,) = {"RS256", "PS384"} - {algorithm} if algorithm in ("RS256", "PS384") else ("RS256",)
    with pytest.raises(TokenRefused, match="is not one of its key"):
        claims(set_of(without(issuer.jwk, alg=other)), token)


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "EdDSA"])
def test_a_curve_has_one_algorithm(algorithm: str) -> None:
    other = Issuer(algorithm=algorithm)
    keys = set_of(without(other.jwk, "alg"))
    assert claims(keys, other.token())["sub"] == "ada"
    for wrong in {"ES256", "ES384", "EdDSA", "RS256"} - {algorithm}:
        head, rest = other.token().split(".", 1)
        head = urlsafe_b64encode(json.dumps({"alg": wrong, "kid": "first"}).encode()).decode()
        with pytest.raises(TokenRefused, match="is not one of its key"):
            claims(keys, f"{head.rstrip('=')}.{rest}")


def test_a_signature_with_a_secret_or_without_anything_is_none(issuer: Issuer) -> None:
    """RFC 8725 §2.1, §3.1: nor is one with the public key for a secret."""
    headers = {"kid": "first"}
    no_key: Any = None
    unsigned = jwt.encode({"sub": "ada"}, no_key, algorithm="none", headers=headers)
    secret = jwt.encode({"sub": "ada"}, "s" * 32, algorithm="HS256", headers=headers)
    # The library does not sign with the public key, so the token is put together by hand.
    signed = secret.rpartition(".")[0]
    digest = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = jwt.utils.base64url_encode(digest.sign(signed.encode(), issuer.pem)).decode()
    for jwk in (issuer.jwk, without(issuer.jwk, "alg")):
        for token in (unsigned, secret, f"{signed}.{signature}"):
            with pytest.raises(TokenRefused, match="is not one that proves the issuer"):
                claims(set_of(jwk, SECRET), token)


def test_a_token_without_the_name_of_a_key_is_checked_with_the_only_one_that_fits(
    issuer: Issuer,
) -> None:
    token = issuer.signed({"sub": "ada"}, {})
    curve = Issuer("second", "ES256")
    assert claims(set_of(without(issuer.jwk, "kid")), token)
    assert claims(set_of(issuer.jwk, curve.jwk), token)
    assert claims(set_of(without(issuer.jwk, "kid"), without(curve.jwk, "kid")), token)
    with pytest.raises(TokenRefused, match=r"names no key \(kid\), and several"):
        claims(set_of(issuer.jwk, without(issuer.jwk, kid="second")), token)
    assert set_of(curve.jwk).find(header_of(token)) is None


# Sets


def test_keys_that_check_no_token_are_left_out(issuer: Issuer) -> None:
    unusable = [
        SECRET,
        7,
        without(issuer.jwk, use="enc"),
        without(issuer.jwk, key_ops=["encrypt"]),
        without(issuer.jwk, alg="RSA-OAEP"),
        without(issuer.jwk, kid=["first"]),
        without(issuer.jwk, kty="DSA"),
    ]
    assert claims(set_of(*unusable, issuer.jwk), issuer.token())["sub"] == "ada"


def test_of_a_private_key_the_public_half_is_used(issuer: Issuer) -> None:
    key: Any = issuer._key
    private: Any = jwt.get_algorithm_by_name("RS256")
    jwk = {**private.to_jwk(key, as_dict=True), "kid": "first", "key_ops": ["sign", "verify"]}
    assert "d" in jwk
    assert claims(set_of(jwk), issuer.token())["sub"] == "ada"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is no JSON: "),
        ("[" * 100_000, "it is no JSON: "),
        ('{"keys": ' + "1" * 5_000 + "}", "it is no JSON: "),
        ("[]", "it is no JSON object with a list"),
        ("{}", "it is no JSON object with a list"),
        ('{"keys": {}}', "it is no JSON object with a list"),
        ('{"keys": []}', "that can check a token: it is empty"),
        ('{"keys": [1]}', "that can check a token: key 0 is no JSON object"),
        (json.dumps({"keys": [SECRET]}), r"key 0 is a secret \(kty oct\)"),
        ('{"keys": [{"kty": "RSA"}]}', "key 0 has no n"),
        ('{"keys": [{"kty": "RSA", "n": [], "e": "AQAB"}]}', "key 0 has no n"),
        ('{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}', "key 0 "),
        ('{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}]}', "cannot be used"),
        ('{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AQ"}]}', "cannot be used"),
        ('{"keys": [{"kty": "EC", "crv": "secp256k1", "x": "AQ", "y": "AQ"}]}', "no known curve"),
        ('{"keys": [{"kty": ["EC"], "crv": "P-256"}]}', "key 0 has no kind"),
        ('{"keys": [1, 2, 3, 4]}', "key 2 is no JSON object$"),
    ],
)
def test_a_set_without_use_says_why(text: str, why: str) -> None:
    with pytest.raises(KeySetError, match=why):
        parse_key_set(text)


def test_no_two_keys_have_one_name(issuer: Issuer) -> None:
    """RFC 7517 §4.5. A key that is left out takes no name."""
    with pytest.raises(KeySetError, match="several keys that are named 'first'"):
        set_of(issuer.jwk, Issuer(algorithm="ES256").jwk)
    assert set_of(issuer.jwk, without(issuer.jwk, use="enc"))


def test_a_key_of_rsa_is_neither_short_nor_a_burden(issuer: Issuer) -> None:
    """RFC 7518 §3.3"""
    for size, why in ((128, "has 1024 bits"), (4096, "is too long")):
        modulus = (1 << (8 * size) - 1 | 1).to_bytes(size, "big")
        number = urlsafe_b64encode(modulus).decode().rstrip("=")
        with pytest.raises(KeySetError, match=why):
            set_of(without(issuer.jwk, n=number))
    with pytest.raises(KeySetError, match="has no e, or one that is too long"):
        set_of(without(issuer.jwk, e="AQAB" * 100))


# Anything

_TEXT = st.sampled_from(["RSA", "EC", "OKP", "oct", "P-256", "Ed25519", "sig", "RS256", "AQAB"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_MEMBERS = ("kty", "kid", "use", "key_ops", "alg", "n", "e", "crv", "x", "y", "d", "k")
KEYS = [Issuer(algorithm=each) for each in ("RS256", "ES256", "EdDSA")]


@given(st.data())
def test_a_set_is_read_or_refused_whatever_its_keys_are(data: st.DataObject) -> None:
    """Real keys with a few members of another kind."""
    base = data.draw(st.sampled_from([{}, *(each.jwk for each in KEYS)]))
    changes = data.draw(st.dictionaries(st.sampled_from(_MEMBERS), _VALUES, max_size=4))
    try:
        keys = set_of({**base, **changes})
    except KeySetError:
        return
    for each in KEYS:
        try:
            said = claims(keys, each.token())
        except TokenRefused:
            continue
        assert said["sub"] == "ada"


@given(st.text() | _VALUES.map(json.dumps))
@example('{"keys": [{"kty": "\ud800"}]}')
def test_a_set_is_read_or_refused_whatever_it_is(text: str) -> None:
    with pytest.raises(KeySetError):
        parse_key_set(text)


_PARTS = st.binary(max_size=30) | _VALUES.map(lambda value: json.dumps(value).encode())
ANY_KEYS = [parse_key_set(json.dumps({"keys": [each.jwk]})) for each in KEYS]


def encoded(part: bytes) -> str:
    return urlsafe_b64encode(part).decode().rstrip("=")


@given(st.text("abcdeyJ.=_-é", max_size=40) | st.lists(_PARTS.map(encoded)).map(".".join))
@example(f"{encoded(b'[' * 9_000)}.e30.e30")
@example(f"{encoded(b'1' * 9_000)}.e30.e30")
@example("")
def test_a_token_is_checked_or_refused_whatever_it_is(token: str) -> None:
    for keys in ANY_KEYS:
        with pytest.raises(TokenRefused):
            claims(keys, token)


@given(
    st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "typ", "zip"]), _VALUES),
    st.sampled_from(["RS256", "PS512", "ES256", "EdDSA", "none", "HS256"]),
    _PARTS,
    _PARTS,
)
def test_a_token_without_the_right_signature_is_refused_whatever_it_says(
    header: dict[str, Any], algorithm: str, payload: bytes, signature: bytes
) -> None:
    head = json.dumps({"alg": algorithm, "kid": "first", **header}).encode()
    token = ".".join(encoded(each) for each in (head, payload, signature))
    for keys in ANY_KEYS:
        with pytest.raises(TokenRefused):
            claims(keys, token)


def test_a_header_of_any_depth_is_refused() -> None:
    """Where the recursion ends depends on how deep the caller is."""
    for depth in range(1, 1_000, 3):
        inner = "[" * depth + "]" * depth
        head = f'{{"alg": "EdDSA", "kid": "first", "x": {inner}}}'.encode()
        with pytest.raises(TokenRefused):
            claims(ANY_KEYS[2], f"{encoded(head)}.e30.e30")


@given(_PARTS)
@example(b"[" * 9_000)
@example(b'{"a": ' + b"1" * 9_000 + b"}")
@example(b'{"a": "\xff"}')
def test_claims_that_are_signed_are_an_object_or_refused(payload: bytes) -> None:
    issuer, keys = KEYS[2], ANY_KEYS[2]
    token = jwt.PyJWS().encode(payload, issuer._key, "EdDSA", {"kid": issuer.kid})
    try:
        said = claims(keys, token)
    except TokenRefused:
        return
    assert isinstance(said, dict)
