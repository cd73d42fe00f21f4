"""An issuer of tokens: a key pair, tokens that it signs, and its set of public keys."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

AUDIENCE, NAME = "millrace", "https://issuer.example"
_CURVES: dict[str, ec.EllipticCurve] = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
}


class Issuer:
    """`kid` is the name of its key, `algorithm` how it signs."""

    def __init__(self, kid: str = "first", algorithm: str = "RS256") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self._key: Any = (
            rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
            if algorithm[:2] in ("RS", "PS")
            else ed25519.Ed25519PrivateKey.generate()
            if algorithm == "EdDSA"
            else ec.generate_private_key(_CURVES[algorithm])
        )

    def token(self, *, kid: str | None = None, lifetime_s: float = 600, **claims: Any) -> str:
        """A token of `ada` for ten minutes; a claim that is None is left out."""
        now_s = time.time()
        said = {"sub": "ada", "aud": AUDIENCE, "iss": NAME, "iat": now_s, "exp": now_s + lifetime_s}
        said = {name: each for name, each in {**said, **claims}.items() if each is not None}
        return self.signed(said, {"kid": self.kid if kid is None else kid})

    def signed(
        self, claims: dict[str, Any], headers: dict[str, Any], algorithm: str | None = None
    ) -> str:
        """A token that says so."""
        return jwt.encode(claims, self._key, algorithm=algorithm or self.algorithm, headers=headers)

    @property
    def jwk(self) -> dict[str, Any]:
        """Its public key as a JSON web key."""
        kind: Any = jwt.get_algorithm_by_name(self.algorithm)
        made: dict[str, Any] = kind.to_jwk(self._key.public_key(), as_dict=True)
        return {**made, "kid": self.kid, "alg": self.algorithm, "use": "sig"}

    @property
    def pem(self) -> bytes:
        """Its public key, which an attacker may take for the secret of a signature."""
        pem: bytes = self._key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        return pem


def key_set(*issuers: Issuer) -> str:
    """The text of a set of JSON web keys."""
    return json.dumps({"keys": [each.jwk for each in issuers]})


def write_keys(path: Path, *issuers: Issuer) -> str:
    """Writes the set; returns the path."""
    path.write_text(key_set(*issuers), "utf-8")
    return str(path)
