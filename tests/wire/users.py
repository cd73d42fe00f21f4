"""Checks of W-4.38 to W-4.41: users and rights, on a listener without SASL."""

from __future__ import annotations

from tests.wire.check import Target, check, codes, equal
from tests.wire.client import Connection

SECURITY_DISABLED = 54
INVALID_REQUEST, UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE = 42, 33, 34
RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL = 91, 92, 93
SHA_256, SHA_512 = 1, 2
SALT = b"salt"
PASSWORD = bytes(32)


def _set(wire: Connection, *upsertions: tuple[str, int, int, bytes, bytes]) -> list[int]:
    return codes(wire.call("AlterUserScramCredentials", [], list(upsertions)).users)


@check("W-4.38.2")
def a_listener_without_sasl_refuses_a_step_and_goes_on(target: Target) -> None:
    """ILLEGAL_SASL_STATE."""
    with target.connect() as wire:
        refused = wire.refusal("Authenticate", "SCRAM-SHA-256", b"n,,n=ada,r=nonce")
        equal(refused.code, ILLEGAL_SASL_STATE, "code")
        wire.call("Metadata", [])


@check("W-4.39.1", "W-4.40.1")
def a_user_is_set_described_and_removed(target: Target) -> None:
    """With a password of each mechanism, in the order of the request."""
    user = target.name("user")
    with target.connect() as wire:
        both = [(user, SHA_512, 4096, SALT, bytes(64)), (user, SHA_256, 16_384, SALT, PASSWORD)]
        equal(_set(wire, *both), [0], "one result for a user")
        known, missing, twice = user, target.name("user"), target.name("user")
        found = wire.call("DescribeUserScramCredentials", [twice, known, missing, twice]).users
        wanted = [(twice, DUPLICATE_RESOURCE), (known, 0), (missing, RESOURCE_NOT_FOUND)]
        equal([(each.user, each.error_code) for each in found], wanted, "users")
        kept = [(each.mechanism, each.iterations) for each in found[1].credentials]
        equal(kept, [(SHA_256, 16_384), (SHA_512, 4096)], "passwords")
        gone = wire.call("AlterUserScramCredentials", [(user, SHA_256), (user, SHA_512)], [])
        equal(codes(gone.users), [0], "removal")
        again = wire.call("AlterUserScramCredentials", [(user, SHA_256)], [])
        equal(codes(again.users), [RESOURCE_NOT_FOUND], "second removal")


@check("W-4.40.1")
def what_no_password_can_be_is_refused_for_its_user(target: Target) -> None:
    """All of one user is refused, and others are set."""
    good, bad = target.name("user"), target.name("user")
    right = (good, SHA_256, 4096, SALT, PASSWORD)
    wrong = {
        (bad, SHA_256, 4095, SALT, PASSWORD): UNACCEPTABLE_CREDENTIAL,
        (bad, SHA_256, 16_385, SALT, PASSWORD): UNACCEPTABLE_CREDENTIAL,
        (bad, SHA_256, 4096, b"abc", PASSWORD): UNACCEPTABLE_CREDENTIAL,
        (bad, SHA_256, 4096, bytes(256), PASSWORD): UNACCEPTABLE_CREDENTIAL,
        (bad, SHA_512, 4096, SALT, PASSWORD): UNACCEPTABLE_CREDENTIAL,
        (bad, 3, 4096, SALT, PASSWORD): UNSUPPORTED_SASL_MECHANISM,
        ("", SHA_256, 4096, SALT, PASSWORD): UNACCEPTABLE_CREDENTIAL,
        ("a\nb", SHA_256, 4096, SALT, PASSWORD): UNACCEPTABLE_CREDENTIAL,
        ("ANONYMOUS", SHA_256, 4096, SALT, PASSWORD): UNACCEPTABLE_CREDENTIAL,
        ("x" * 256, SHA_256, 4096, SALT, PASSWORD): UNACCEPTABLE_CREDENTIAL,
    }
    with target.connect() as wire:
        for upsertion, code in wrong.items():
            equal(_set(wire, right, upsertion), [0, code], f"{upsertion}")
        twice = (bad, SHA_256, 4096, SALT, PASSWORD)
        equal(_set(wire, twice, twice), [DUPLICATE_RESOURCE], "twice")
        found = wire.call("DescribeUserScramCredentials", [bad]).users
        equal(codes(found), [RESOURCE_NOT_FOUND], "a refused user")
        many = [(f"{bad}-{number}", SHA_256, 4096, SALT, PASSWORD) for number in range(101)]
        equal(wire.refusal("AlterUserScramCredentials", [], many).code, INVALID_REQUEST, "101")


@check("W-4.41.1")
def a_broker_without_authorization_has_no_rights_to_tell_of(target: Target) -> None:
    """SECURITY_DISABLED."""
    anything = (1, 1, None, None, None, 1, 1)
    with target.connect() as wire:
        for api, body in (("DescribeAcls", [anything]), ("CreateAcls", []), ("DeleteAcls", [])):
            equal(wire.refusal(api, body).code, SECURITY_DISABLED, api)
