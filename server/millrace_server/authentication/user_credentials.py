"""The credential of a user, and one for each name that is no user's.

A client that asks for a name without a user gets a salt all the same, always the same one: derived
from the name and from a secret of the cluster. So an answer does not tell which users there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace_protocol.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    signature,
)

Users = Mapping[str, Mapping[ScramMechanism, ScramCredential]]
_HASH = ScramMechanism.SCRAM_SHA_512


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """The users of an image, and the secret for the names that are none."""

    users: Users
    secret: bytes

    def of(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """The credential of a user for a mechanism; without one, one that no password fits."""
        found = self.users.get(user, {}).get(mechanism)
        return found or self._of_nobody(mechanism, user)

    def any_of(self, user: str) -> ScramCredential:
        """The credential of a user for a mechanism that it has one for."""
        for mechanism in sorted(self.users.get(user, {})):
            return self.users[user][mechanism]
        return self._of_nobody(ScramMechanism.SCRAM_SHA_256, user)

    def _of_nobody(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        def derived(what: str) -> bytes:
            return signature(_HASH, self.secret, f"{what} {mechanism.name} {user}".encode())

        size = mechanism.key_bytes
        # A password that fits would be the preimage of a hash.
        return ScramCredential(
            mechanism,
            derived("salt")[:SALT_BYTES],
            derived("stored key")[:size],
            derived("server key")[:size],
            ITERATIONS_MIN,
        )
