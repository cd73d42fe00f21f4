"""An issuer of tokens: a key pair, tokens that it signs, and its set of public keys."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

AUDIENCE, NAME = "millrace", "https://issuer.example"


class Issuer:
    """`kid` is the name of its key."""

    def __init__(self, kid: str = "first", *, elliptic: bool = False) -> None:
        self.kid = kid
        self.algorithm = "ES256" if elliptic else "RS256"
        self._key: Any = (
            ec.generate_private_key(ec.SECP256R1())
            if elliptic
            else rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        )

    def token(self, *, kid: str | None = None, lifetime_s: float = 600, **claims: Any) -> str:
        """A token of `ada` for ten minutes; a claim that is None is left out."""
        now_s = time.time()
        said = {"sub": "ada", "aud": AUDIENCE, "iss": NAME, "iat": now_s, "exp": now_s + lifetime_s}
        said = {name: each for name, each in {**said, **claims}.items() if each is not None}
        headers = {"kid": self.kid if kid is None else kid}
        return jwt.encode(said, self._key, algorithm=self.algorithm, headers=headers)

    @property
    def jwk(self) -> dict[str, Any]:
        """Its public key as a JSON web key."""
        algorithms = jwt.algorithms
        is_rsa = self.algorithm == "RS256"
        kind = algorithms.RSAAlgorithm if is_rsa else algorithms.ECAlgorithm
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
