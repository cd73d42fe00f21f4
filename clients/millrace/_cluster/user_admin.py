"""Users for an operator: which there are, and their passwords (KIP-554).

Owns these calls of the admin client. The active controller answers all of them. A password never
leaves this process: the broker gets it salted.
"""

from __future__ import annotations

import random

from millrace._broker_error import broker_error
from millrace._cluster.cluster import Cluster
from millrace.errors import ConfigError, UserNotFound
from millrace.users import UserDescription
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialDeletion,
    CredentialUpsertion,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from millrace_protocol.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramMechanism,
    salt_password,
)


class UserAdmin:
    """The part of the admin client that knows users."""

    _cluster: Cluster

    def _check(self) -> None:
        """Raises unless the client runs."""
        raise NotImplementedError

    async def list_users(self) -> dict[str, UserDescription]:
        """All users that have a password, by name."""
        self._check()
        answer = await self._cluster.call(
            DescribeUserScramCredentialsRequest(None),
            DescribeUserScramCredentialsResponse,
            to=self._cluster.controller,
        )
        return {
            each.user: UserDescription(
                each.user,
                {
                    ScramMechanism(found.mechanism).sasl_name: found.iterations
                    for found in each.credentials
                },
            )
            for each in answer.users
        }

    async def set_password(
        self, user: str, password: str, *, iterations: int = ITERATIONS_MIN
    ) -> None:
        """Sets the password of a user, for SCRAM-SHA-256 and SCRAM-SHA-512; makes a new user.

        More `iterations`, 4096 to 16384, make each guess of a stolen credential and each login
        take longer. The user's connections stay. Raises `ConfigError` and `BrokerError`.
        """
        self._check()
        if not password:
            raise ConfigError("password: must not be empty")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ConfigError(f"iterations: must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        rng = random.SystemRandom()  # noqa: TID251
        upsertions = []
        for mechanism in ScramMechanism:
            salt = rng.randbytes(SALT_BYTES)
            salted = salt_password(mechanism, password, salt, iterations)
            upsertions.append(CredentialUpsertion(user, mechanism, iterations, salt, salted))
        await self._alter(user, AlterUserScramCredentialsRequest((), tuple(upsertions)))

    async def delete_user(self, user: str) -> None:
        """Takes the passwords of a user away; its connections stay. Raises `UserNotFound`."""
        known = (await self.list_users()).get(user)
        if known is None:
            raise UserNotFound(f"there is no user {user!r}", code=ErrorCode.RESOURCE_NOT_FOUND)
        deletions = tuple(
            CredentialDeletion(user, mechanism)
            for mechanism in ScramMechanism
            if mechanism.sasl_name in known.iterations
        )
        await self._alter(user, AlterUserScramCredentialsRequest(deletions, ()))

    async def _alter(self, user: str, request: AlterUserScramCredentialsRequest) -> None:
        answer = await self._cluster.call(
            request, AlterUserScramCredentialsResponse, to=self._cluster.controller
        )
        for each in answer.users:
            if each.error_code:
                raise broker_error(each.error_code, each.error_message, about=f"user {user!r}")
