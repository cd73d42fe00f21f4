"""SCRAM on both sides, without a broker: the examples of the RFCs, and messages of all kinds."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._cluster.scram_client import ScramClient
from millrace_protocol.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramError,
    ScramMechanism,
    client_key,
    credential_of,
    escape_name,
    exclusive_or,
    salt_password,
    signature,
    unescape_name,
)
from millrace_protocol.spec.login_examples import SCRAM_MESSAGES
from millrace_server.authentication.exchange import Accepted, Challenge, SaslFailed
from millrace_server.authentication.plain import PlainExchange
from millrace_server.authentication.scram import SCRAM_BYTES_MAX, ScramExchange
from millrace_server.authentication.user_credentials import UserCredentials

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
MESSAGES = st.one_of(
    st.binary(max_size=200),
    st.text(alphabet="nyprcsiv=,+/azAZ019\u00e9\0", max_size=120).map(str.encode),
    st.sampled_from([*SCRAM_MESSAGES.values()]),
)


CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
USERS = {
    "user": {
        each: credential_of(each, salt_password(each, "pencil", SALT, 4096), SALT, 4096)
        for each in ScramMechanism
    }
}
CREDENTIALS = UserCredentials(USERS, b"a secret of the cluster")


def exchange(mechanism: ScramMechanism = SHA_256, nonce: str = "server") -> ScramExchange:
    return ScramExchange(mechanism, lambda user: CREDENTIALS.of(mechanism, user), nonce)


def client(
    user: str = "user", password: str = "pencil", mechanism: ScramMechanism = SHA_256
) -> ScramClient:
    return ScramClient(mechanism, user, password, nonce="client", salted={})


def log_in(scram: ScramClient, broker: ScramExchange) -> Accepted:
    challenge = broker.step(scram.first())
    assert isinstance(challenge, Challenge)
    accepted = broker.step(scram.final(challenge.message))
    assert isinstance(accepted, Accepted)
    return accepted


def test_the_broker_answers_as_in_rfc_7677() -> None:
    broker = exchange(SHA_256, SERVER_NONCE)
    assert broker.step(SCRAM_MESSAGES["client-first"]) == Challenge(SCRAM_MESSAGES["server-first"])
    assert broker.step(SCRAM_MESSAGES["client-final"]) == Accepted(
        "user", SCRAM_MESSAGES["server-final"]
    )


def test_the_client_sends_what_rfc_7677_has() -> None:
    scram = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE, salted={})
    assert scram.first() == SCRAM_MESSAGES["client-first"]
    assert scram.final(SCRAM_MESSAGES["server-first"]) == SCRAM_MESSAGES["client-final"]
    scram.check(SCRAM_MESSAGES["server-final"])


@pytest.mark.parametrize("mechanism", ScramMechanism, ids=lambda each: each.sasl_name)
def test_both_sides_agree(mechanism: ScramMechanism) -> None:
    scram = client(mechanism=mechanism)
    accepted = log_in(scram, exchange(mechanism))
    assert accepted.user == "user"
    scram.check(accepted.message)


@given(st.text(min_size=1, max_size=40))
def test_every_name_comes_back_from_its_escaped_form(name: str) -> None:
    assert unescape_name(escape_name(name)) == name
    assert "," not in escape_name(name)


def test_a_wrong_password_and_an_unknown_user_fail_at_the_same_step_with_the_same_words() -> None:
    """W-4.38.3"""
    words = []
    for scram in (client(password="wrong"), client(user="nobody")):
        broker = exchange()
        challenge = broker.step(scram.first())
        assert isinstance(challenge, Challenge)
        with pytest.raises(SaslFailed) as failed:
            broker.step(scram.final(challenge.message))
        words.append(str(failed.value))
    assert words[0] == words[1]


def test_a_name_without_a_user_always_gets_its_own_salt() -> None:
    """W-4.38.3"""

    def salt(user: str, mechanism: ScramMechanism = SHA_256) -> ScramCredential:
        return CREDENTIALS.of(mechanism, user)

    assert salt("nobody") == salt("nobody")
    assert len({salt("nobody").salt, salt("anybody").salt, salt("nobody", SHA_512).salt}) == 3
    assert salt("nobody").iterations == ITERATIONS_MIN
    assert salt("nobody").salt != UserCredentials(USERS, b"another").of(SHA_256, "nobody").salt


@given(st.lists(MESSAGES, max_size=4))
def test_no_messages_without_the_password_are_accepted(messages: list[bytes]) -> None:
    broker = exchange()
    for number, message in enumerate(messages):
        try:
            step = broker.step(message)
        except SaslFailed:
            # It stays so.
            with pytest.raises(SaslFailed, match="has ended"):
                broker.step(SCRAM_MESSAGES["client-first"])
            return
        assert isinstance(step, Challenge)
        assert number == 0


def test_a_client_may_send_its_nonce_twice() -> None:
    """As librdkafka does until 2.6.1."""
    scram, broker = client(), exchange()
    challenge = broker.step(scram.first())
    assert isinstance(challenge, Challenge)
    server_first = challenge.message.decode()
    bare = scram.first().decode().removeprefix("n,,")
    own, both = bare.partition("r=")[2], server_first.partition(",")[0].removeprefix("r=")
    without_proof = f"c=biws,r={own}{both}"
    credential = CREDENTIALS.of(SHA_256, "user")
    salted = salt_password(SHA_256, "pencil", credential.salt, credential.iterations)
    signed = signature(
        SHA_256, credential.stored_key, f"{bare},{server_first},{without_proof}".encode()
    )
    proof = b64encode(exclusive_or(client_key(SHA_256, salted), signed)).decode()
    assert isinstance(broker.step(f"{without_proof},p={proof}".encode()), Accepted)


def test_a_final_nonce_of_any_characters_is_a_failed_login() -> None:
    scram, broker = client(), exchange()
    challenge = broker.step(scram.first())
    assert isinstance(challenge, Challenge)
    both = challenge.message.decode().partition(",")[0].removeprefix("r=")
    proof = b64encode(bytes(32)).decode()
    with pytest.raises(SaslFailed, match="the user or the password is wrong"):
        broker.step(f"c=biws,r={'é' * len(both)},p={proof}".encode())


def test_a_proof_in_base64_with_bits_behind_its_last_byte_is_refused() -> None:
    scram, broker = client(), exchange()
    challenge = broker.step(scram.first())
    assert isinstance(challenge, Challenge)
    final = scram.final(challenge.message).decode()
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    same_proof = final[:-2] + digits[digits.index(final[-2]) + 1] + "="
    assert b64decode(same_proof.partition(",p=")[2]) == b64decode(final.partition(",p=")[2])
    with pytest.raises(SaslFailed, match="bits are set behind its last byte"):
        broker.step(same_proof.encode())


@given(st.data())
def test_a_final_message_that_is_changed_anywhere_is_refused(data: st.DataObject) -> None:
    scram, broker = client(), exchange()
    challenge = broker.step(scram.first())
    assert isinstance(challenge, Challenge)
    final = bytearray(scram.final(challenge.message))
    position = data.draw(st.integers(0, len(final) - 1))
    final[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SaslFailed):
        broker.step(bytes(final))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"p=tls-unique,,n=user,r=x", "no channel binding"),
        (b"n,a=other,n=user,r=x", "may act for itself only"),
        (b"n,,n=,r=x", "the name is empty"),
        (b"n,,m=ext,n=user,r=x", "attribute n= is missing"),
        (b"n,,n=us=er,r=x", "is written =3D"),
        (b"n,,n=user,r=", "a nonce is printable"),
        (b"n,,n=user,r=\x07", "a nonce is printable"),
        (b"n,,n=user", "has the attributes"),
        (b"\xff", "not UTF-8"),
        (b"", "begins with 'n,,'"),
        (b"n,,n=user,r=" + b"x" * SCRAM_BYTES_MAX, "and may have 4096"),
    ],
)
def test_a_malformed_first_message_is_refused_with_the_reason(message: bytes, why: str) -> None:
    """W-4.38.2"""
    with pytest.raises(SaslFailed, match=why):
        exchange().step(message)


def test_a_user_may_name_itself_as_the_one_to_act_for() -> None:
    broker = exchange()
    assert isinstance(broker.step(b"n,a=user,n=user,r=x"), Challenge)


@pytest.mark.parametrize(
    ("server_first", "why"),
    [
        (b"r=other,s=AAAA,i=4096", "nonce does not begin"),
        (b"r=client,s=AAAA,i=4096", "nonce does not begin"),
        (b"r=clientx,s=AAAA,i=1", "1 iterations"),
        (b"r=clientx,s=AAAA,i=99999999999999999999", "999999999 iterations"),
        (b"r=clientx,s=AAAA,i=many", "number of iterations is none"),
        (b"r=clientx,s=*,i=4096", "not base64"),
        (b"s=AAAA,r=clientx,i=4096", "attribute r= is missing"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_client_refuses_what_a_broker_may_not_say(server_first: bytes, why: str) -> None:
    """W-4.38.5"""
    scram = client()
    scram.first()
    with pytest.raises(ScramError, match=why):
        scram.final(server_first)


@pytest.mark.parametrize("last", [b"v=" + b64encode(bytes(32)), b"e=other-error", b"v=*", b""])
def test_a_client_refuses_a_broker_that_does_not_know_the_user(last: bytes) -> None:
    """W-4.38"""
    scram = client()
    challenge = exchange().step(scram.first())
    assert isinstance(challenge, Challenge)
    scram.final(challenge.message)
    with pytest.raises(ScramError):
        scram.check(last)


def test_a_client_salts_its_password_once() -> None:
    salted: dict[tuple[bytes, int], bytes] = {}
    for _ in range(2):
        scram = ScramClient(SHA_256, "user", "pencil", nonce="client", salted=salted)
        log_in(scram, exchange())
    assert [*salted] == [(SALT, 4096)]


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_plain_compares_with_the_salted_password(user: str) -> None:
    plain = PlainExchange(CREDENTIALS.any_of)
    work = plain.step(f"\0{user}\0pencil".encode())
    if user == "user":
        assert work() == Accepted("user")
    else:
        with pytest.raises(SaslFailed, match="user or the password is wrong"):
            work()
    with pytest.raises(SaslFailed, match="has ended"):
        plain.step(b"\0user\0pencil")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"user\0pencil", "is \\[authzid\\] NUL name NUL password"),
        (b"\0user\0pencil\0", "is \\[authzid\\] NUL name NUL password"),
        (b"\0\0pencil", "has a name and a password"),
        (b"\0user\0", "has a name and a password"),
        (b"other\0user\0pencil", "may act for itself only"),
        (b"\0user\0\xff", "not UTF-8"),
        (b"\0user\0" + b"x" * 5_000, "at most 4096 bytes"),
    ],
)
def test_a_malformed_message_of_plain_is_refused_with_the_reason(message: bytes, why: str) -> None:
    with pytest.raises(SaslFailed, match=why):
        PlainExchange(CREDENTIALS.any_of).step(message)
