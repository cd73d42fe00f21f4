"""The user that a new cluster starts with, as Kafka's `kafka-storage format --add-scram` makes it.

Owns the salting of its password. The records go into the batch of a broker's registration, so a
broker that serves has the user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace_protocol.metadata_records import MetadataRecord
from millrace_protocol.scram import ITERATIONS_MIN, SALT_BYTES, ScramMechanism, salt_password
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.scram_credentials import SECRET_BYTES, Upsertion, add_initial_user

log = get_logger("millrace.controller")
Decision = Callable[[ClusterImage], Sequence[MetadataRecord]]


class InitialUser:
    """`initial_user` of the active controller's settings; without a name there is none."""

    def __init__(self, env: Environment, name: str, password: str) -> None:
        self._env = env
        self._name = name
        self._password = password

    async def decision(self, image: ClusterImage) -> Decision:
        """What decides on the records of the user; none where the cluster has ever had one."""
        if not self._name or image.scram_secret:
            return lambda image: ()
        salts = {each: self._random_bytes(SALT_BYTES) for each in ScramMechanism}
        secret = self._random_bytes(SECRET_BYTES)
        credentials = await self._env.spawn.blocking(self._salted, salts)

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            records = add_initial_user(image, credentials, new_secret=secret)
            if records:
                log.info("initial user added", user=self._name)
            return records

        return decide

    def _salted(self, salts: dict[ScramMechanism, bytes]) -> list[Upsertion]:
        """Blocking: a hash takes milliseconds."""
        return [
            Upsertion(
                self._name,
                mechanism,
                ITERATIONS_MIN,
                salt,
                salt_password(mechanism, self._password, salt, ITERATIONS_MIN),
            )
            for mechanism, salt in salts.items()
        ]

    def _random_bytes(self, count: int) -> bytes:
        return self._env.rng.getrandbits(8 * count).to_bytes(count, "big")
