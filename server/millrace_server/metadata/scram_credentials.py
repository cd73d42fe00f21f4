"""Users: which passwords may be set and removed (KIP-554).

Owns the bounds on users. A user is a name with at least one credential.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    MetadataRecord,
    RemoveScramCredentialRecord,
    ScramCredentialRecord,
    ScramSecretRecord,
)
from millrace_protocol.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    ScramMechanism,
    credential_of,
)
from millrace_server.api_error import ApiError, quoted
from millrace_server.metadata.image import ClusterImage
from millrace_server.principal import USER_BYTES_MAX, is_user_name

USERS_MAX = 10_000
ALTERATIONS_MAX = 100
"""Of one request: each takes 20 us, in which no other request is answered."""
SALT_BYTES_MIN, SALT_BYTES_MAX = 4, 255
SECRET_BYTES = 32
"""Of the cluster's secret, from which it derives the salts of names without a user."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A credential that is to go. `mechanism` is a number of the wire."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A credential that is to be set. `mechanism` is a number of the wire."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


Alteration = Deletion | Upsertion


@dataclass(frozen=True, slots=True)
class CredentialDecisions:
    """Records of what is allowed; the refusal of each user, None for a success."""

    records: Sequence[MetadataRecord]
    refused: Mapping[str, ApiError | None]


def alter_credentials(
    image: ClusterImage, alterations: Sequence[Alteration], *, new_secret: bytes
) -> CredentialDecisions:
    """Decides on each user for itself. `new_secret` is taken where the cluster has none yet.

    Raises `ApiError` for a request that names more than `ALTERATIONS_MAX`.
    """
    if len(alterations) > ALTERATIONS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{len(alterations)} passwords are to be changed; one request changes at most "
            f"{ALTERATIONS_MAX}",
        )
    by_user: dict[str, list[Alteration]] = {}
    for each in alterations:
        by_user.setdefault(each.user, []).append(each)
    records: list[MetadataRecord] = []
    refused: dict[str, ApiError | None] = {}
    count = len(image.users)
    for user, changes in by_user.items():
        try:
            made = [_record(image, change) for change in changes]
            _check_once(changes)
            count += _added(image, user, changes)
            if count > USERS_MAX and user not in image.users:
                count -= 1
                raise ApiError(
                    ErrorCode.UNACCEPTABLE_CREDENTIAL,
                    f"There are {USERS_MAX} users, as many as a cluster may have; remove some",
                )
        except ApiError as error:
            refused[user] = error
        else:
            refused[user] = None
            records += made
    if not image.scram_secret and any(isinstance(r, ScramCredentialRecord) for r in records):
        records.insert(0, ScramSecretRecord(new_secret))
    return CredentialDecisions(records, refused)


def add_initial_user(
    image: ClusterImage, credentials: Sequence[Upsertion], *, new_secret: bytes
) -> Sequence[MetadataRecord]:
    """Records of the user that a new cluster starts with; none where it has ever had a user.

    The secret stays when the last user is removed, so that no start brings a removed user back.
    """
    if image.scram_secret:
        return ()
    return alter_credentials(image, credentials, new_secret=new_secret).records


def described_users(
    image: ClusterImage, users: Iterable[str] | None
) -> Iterable[tuple[str, ApiError | None]]:
    """Each user that is asked for, all by name for None, with why it cannot be described."""
    if users is None:
        yield from ((user, None) for user in sorted(image.users))
        return
    for user, count in Counter(users).items():
        if count > 1:
            yield (
                user,
                ApiError(ErrorCode.DUPLICATE_RESOURCE, f"User {quoted(user)} is named twice"),
            )
        elif user not in image.users:
            yield user, _unknown(user)
        else:
            yield user, None


def _added(image: ClusterImage, user: str, changes: Sequence[Alteration]) -> int:
    """How many users more there are after the changes of one."""
    mechanisms = set(image.users.get(user, ()))
    for change in changes:
        if isinstance(change, Deletion):
            mechanisms.discard(ScramMechanism(change.mechanism))
        else:
            mechanisms.add(ScramMechanism(change.mechanism))
    return bool(mechanisms) - (user in image.users)


def _record(image: ClusterImage, change: Alteration) -> MetadataRecord:
    if not change.user:
        raise _no_name(change.user)
    mechanism = _mechanism(change.mechanism)
    if isinstance(change, Deletion):
        if mechanism not in image.users.get(change.user, {}):
            raise _unknown(change.user, mechanism)
        return RemoveScramCredentialRecord(change.user, mechanism)
    if not is_user_name(change.user):
        raise _no_name(change.user)
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{change.iterations} iterations; they are {ITERATIONS_MIN} to {ITERATIONS_MAX}",
        )
    if not SALT_BYTES_MIN <= len(change.salt) <= SALT_BYTES_MAX:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"A salt of {len(change.salt)} bytes; it has {SALT_BYTES_MIN} to {SALT_BYTES_MAX}",
        )
    if len(change.salted_password) != mechanism.key_bytes:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"A salted password of {len(change.salted_password)} bytes; that of "
            f"{mechanism.sasl_name} has {mechanism.key_bytes}",
        )
    made = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
    return ScramCredentialRecord(
        change.user, mechanism, made.salt, made.stored_key, made.server_key, made.iterations
    )


def _no_name(user: str) -> ApiError:
    return ApiError(
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        f"{quoted(user)} is no name of a user; it has 1 to {USER_BYTES_MAX} bytes of printable "
        "characters, and is not ANONYMOUS",
    )


def _check_once(changes: Sequence[Alteration]) -> None:
    mechanisms = [change.mechanism for change in changes]
    if len({*mechanisms}) < len(mechanisms):
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A password of a user can be changed once in a request; name each mechanism once",
        )


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism(number)
    except ValueError:
        raise ApiError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"There is no mechanism {number}; 1 and 2 are {' and '.join(SCRAM_MECHANISMS)}",
        ) from None


def _unknown(user: str, mechanism: ScramMechanism | None = None) -> ApiError:
    of_mechanism = "" if mechanism is None else f" with a password for {mechanism.sasl_name}"
    return ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no user {quoted(user)}{of_mechanism}")
