"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): users (KIP-554)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BYTES, INT8, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class UserName(Message):
    """A user that is asked for."""

    name: str = wire(STRING, "name of the user")


@message
class DescribeUserScramCredentialsRequest(KafkaRequest):
    """Asks which users there are."""

    flexible_since: ClassVar[int | None] = 0

    users: tuple[UserName, ...] | None = wire(
        array_of(UserName, nullable=True), "the users; null or none: all", default=None
    )


@message
class CredentialInfo(Message):
    """A password of a user."""

    mechanism: int = wire(INT8, "1: SCRAM-SHA-256, 2: SCRAM-SHA-512")
    iterations: int = wire(INT32, "how often the password is hashed")


@message
class DescribedUser(Message):
    """One user."""

    user: str = wire(STRING, "name of the user")
    error_code: int = wire(INT16, "error of the user")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    credential_infos: tuple[CredentialInfo, ...] = wire(
        array_of(CredentialInfo), "its passwords", default=()
    )


@message
class DescribeUserScramCredentialsResponse(Message):
    """The users."""

    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    results: tuple[DescribedUser, ...] = wire(array_of(DescribedUser), "the users", default=())


@message
class ScramCredentialDeletion(Message):
    """A password that is to go."""

    name: str = wire(STRING, "name of the user")
    mechanism: int = wire(INT8, "1: SCRAM-SHA-256, 2: SCRAM-SHA-512")


@message
class ScramCredentialUpsertion(Message):
    """A password that is to be set."""

    name: str = wire(STRING, "name of the user")
    mechanism: int = wire(INT8, "1: SCRAM-SHA-256, 2: SCRAM-SHA-512")
    iterations: int = wire(INT32, "how often the password is hashed")
    salt: bytes = wire(BYTES, "random bytes")
    salted_password: bytes = wire(BYTES, "the salted password")


@message
class AlterUserScramCredentialsRequest(KafkaRequest):
    """Sets and removes passwords."""

    flexible_since: ClassVar[int | None] = 0

    deletions: tuple[ScramCredentialDeletion, ...] = wire(
        array_of(ScramCredentialDeletion), "to remove"
    )
    upsertions: tuple[ScramCredentialUpsertion, ...] = wire(
        array_of(ScramCredentialUpsertion), "to set"
    )


@message
class AlteredUser(Message):
    """One user."""

    user: str = wire(STRING, "name of the user")
    error_code: int = wire(INT16, "error of the user")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)


@message
class AlterUserScramCredentialsResponse(Message):
    """Each user for itself."""

    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    results: tuple[AlteredUser, ...] = wire(array_of(AlteredUser), "the users", default=())
