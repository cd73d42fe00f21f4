"""Users: the passwords that clients authenticate with (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace_protocol.acls import Operation
from millrace_protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialDeletion,
    CredentialUpsertion,
)
from millrace_protocol.metadata_records import MetadataRecord
from millrace_protocol.scram import ScramMechanism
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.scram_credentials import (
    SECRET_BYTES,
    Alteration,
    Deletion,
    alter_credentials,
    described_users,
)
from millrace_server.peers.calls import outcome
from millrace_server.services.forwarded_topics import FORWARD_TIMEOUT_MS
from millrace_server.services.request_context import RequestContext

log = get_logger("millrace.controller")
Credentials = Mapping[ScramMechanism, int]
"""The iterations of each mechanism that a user has a password for."""


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user, or why there is nothing to tell of it."""

    name: str
    credentials: Credentials
    error: ApiError | None


class UserService:
    """Describes users from the image of this broker; changes are the active controller's."""

    def __init__(
        self,
        env: Environment,
        active: ActiveController,
        cache: MetadataCache,
        controller: ControllerCalls,
    ) -> None:
        self._env = env
        self._active = active
        self._cache = cache
        self._controller = controller

    def describe(
        self, context: RequestContext, names: Sequence[str] | None
    ) -> list[UserDescription]:
        """The users of these names, all by name for None. Raises `ApiError`."""
        context.check_cluster(Operation.DESCRIBE)
        image = self._cache.image
        return [
            UserDescription(
                name,
                {each.mechanism: each.iterations for each in image.users[name].values()}
                if error is None
                else {},
                error,
            )
            for name, error in described_users(image, names)
        ]

    async def alter(
        self, context: RequestContext, alterations: Sequence[Alteration]
    ) -> Mapping[str, ApiError | None]:
        """Sets and removes passwords; the refusal of each user, None for a success.

        Where another broker is the active controller, this one knows them a moment later. Raises
        `ApiError`.
        """
        context.check_cluster(Operation.ALTER)
        if not self._controller.is_here:
            return await self._forward(alterations)
        secret = self._env.rng.getrandbits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big")
        refused: Mapping[str, ApiError | None] = {}

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            nonlocal refused
            decided = alter_credentials(image, alterations, new_secret=secret)
            refused = decided.refused
            return decided.records

        await self._active.change(decide)
        for user, error in refused.items():
            if error is None:
                log.info("user changed", user=user)
        return refused

    async def _forward(self, alterations: Sequence[Alteration]) -> Mapping[str, ApiError | None]:
        request = AlterUserScramCredentialsRequest(
            tuple(
                CredentialDeletion(each.user, each.mechanism)
                for each in alterations
                if isinstance(each, Deletion)
            ),
            tuple(
                CredentialUpsertion(
                    each.user, each.mechanism, each.iterations, each.salt, each.salted_password
                )
                for each in alterations
                if not isinstance(each, Deletion)
            ),
        )
        response = await self._controller.forward(
            request, AlterUserScramCredentialsResponse, timeout_ms=FORWARD_TIMEOUT_MS
        )
        return {each.user: outcome(each.error_code, each.error_message) for each in response.users}
