"""DescribeUserScramCredentials, AlterUserScramCredentials: the users and their passwords."""

from __future__ import annotations

from millrace_protocol.primitives import BYTES, INT8, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class DescribeUserScramCredentialsRequest(Request):
    """Asks which users there are. No response tells what a password is made of."""

    users: tuple[str, ...] | None = wire(
        array_of(STRING, nullable=True), "names of the users; null for all"
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
    error_code: int = wire(INT16, "error of this user (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    credentials: tuple[CredentialInfo, ...] = wire(
        array_of(CredentialInfo), "its passwords, one for each mechanism"
    )


@message
class DescribeUserScramCredentialsResponse(Message):
    """The users asked for, in that order, or all by name."""

    users: tuple[DescribedUser, ...] = wire(array_of(DescribedUser), "the users")


@message
class CredentialDeletion(Message):
    """A password that is to go. A user without one is no user any more."""

    user: str = wire(STRING, "name of the user")
    mechanism: int = wire(INT8, "1: SCRAM-SHA-256, 2: SCRAM-SHA-512")


@message
class CredentialUpsertion(Message):
    """A password that is new, or takes the place of another. The client salts it (RFC 5802)."""

    user: str = wire(STRING, "name of the user")
    mechanism: int = wire(INT8, "1: SCRAM-SHA-256, 2: SCRAM-SHA-512")
    iterations: int = wire(INT32, "how often the password is hashed, 4096 to 16384")
    salt: bytes = wire(BYTES, "random bytes")
    salted_password: bytes = wire(BYTES, "SaltedPassword of RFC 5802")


@message
class AlterUserScramCredentialsRequest(Request):
    """Sets and removes passwords. All changes of one user are made, or none."""

    deletions: tuple[CredentialDeletion, ...] = wire(array_of(CredentialDeletion), "to remove")
    upsertions: tuple[CredentialUpsertion, ...] = wire(array_of(CredentialUpsertion), "to set")


@message
class AlteredUser(Message):
    """The result of one user."""

    user: str = wire(STRING, "name of the user")
    error_code: int = wire(INT16, "error of this user (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")


@message
class AlterUserScramCredentialsResponse(Message):
    """One result per user, in the order in which the request names them first."""

    users: tuple[AlteredUser, ...] = wire(array_of(AlteredUser), "the results")
