"""OAUTHBEARER: tokens that are checked with the keys of their issuer."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import Admin
from millrace.errors import AuthenticationFailed, BrokerError
from millrace_server.authentication.exchange import Accepted, Challenge, SaslFailed
from millrace_server.authentication.oauthbearer import (
    SKEW_S,
    OauthBearerExchange,
    TokenRefused,
    TokenRules,
    user_of,
)
from millrace_server.config import ConfigError
from millrace_server.config_sources import load
from millrace_server.services.authentication import SLOW_STEPS_MAX
from millrace_server.testing import Broker
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.sasl.issuer import AUDIENCE, NAME, Issuer, key_set, write_keys
from tests.tls.conftest import Certificates
from tests.web_server import OK, WebServer

RULES = TokenRules(AUDIENCE, NAME, "sub")
NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
CLAIMS = {"sub": "ada", "aud": AUDIENCE, "iss": NAME, "exp": NOW_S + 60}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


# Claims


@pytest.mark.parametrize(
    "changes",
    [{}, {"aud": ["other", AUDIENCE]}, {"exp": NOW_S - SKEW_S + 1}, {"nbf": NOW_S + SKEW_S}],
)
def test_a_token_names_its_user_until_it_expires(changes: dict[str, Any]) -> None:
    claims = {**CLAIMS, **changes}
    expires_ms = (claims["exp"] + SKEW_S) * 1000
    assert user_of(claims, RULES, NOW_MS) == ("ada", expires_ms)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": None}, "when it expires"),
        ({"exp": "soon"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": 10**400}, "exp is no time"),
        ({"exp": NOW_MS + 60_000}, "exp is no time in seconds"),
        ({"exp": -1}, "exp is no time"),
        ({"nbf": float("nan")}, "nbf is no time"),
        ({"exp": NOW_S - SKEW_S}, "has expired 30 s ago"),
        ({"nbf": NOW_S + SKEW_S + 1}, r"begins in 31 s \(nbf\)"),
        ({"iat": NOW_S + 600}, r"begins in 600 s \(iat\)"),
        ({"aud": None}, "audience is missing"),
        ({"aud": ["other", 7]}, "audience is 'other', no text"),
        ({"aud": {"a": AUDIENCE}}, "audience is no text"),
        ({"iss": [NAME]}, "issuer is no text"),
        ({"iss": "https://other"}, "issuer is"),
        ({"sub": None}, "names no user"),
        ({"sub": ["ada"]}, "names no user"),
        ({"sub": "a\nb"}, "names no user"),
        ({"sub": "x" * 256}, "names no user"),
        ({"sub": "ANONYMOUS"}, "names no user"),
    ],
)
def test_a_token_that_says_something_else_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefused, match=why):
        user_of({**CLAIMS, **changes}, RULES, NOW_MS)


def test_rules_that_are_empty_are_not_looked_at() -> None:
    claims = {"exp": NOW_S + 60, "client": "loader"}
    assert user_of(claims, TokenRules("", "", "client"), NOW_MS)[0] == "loader"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*CLAIMS, "nbf", "iat"]), _VALUES, max_size=2))
def test_claims_of_any_kind_are_taken_or_refused(changes: dict[str, Any]) -> None:
    try:
        user, expires_ms = user_of({**CLAIMS, **changes}, RULES, NOW_MS)
    except TokenRefused:
        return
    assert user
    assert NOW_MS < expires_ms < 1 << 53


# The exchange


async def check(token: str) -> Accepted:
    if token != "good":
        raise TokenRefused("it is not good")
    return Accepted("ada")


def stepped(exchange: OauthBearerExchange, message: bytes) -> object:
    """What a step that waits for nothing comes to."""
    try:
        exchange.step(message).send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


@pytest.mark.parametrize("header", [b"n,,", b"n,a=ada,", b"y,,"])
def test_a_good_token_is_accepted(header: bytes) -> None:
    message = header + b"\x01host=h\x01auth=Bearer good\x01\x01"
    assert stepped(OauthBearerExchange(check), message) == Accepted("ada")


@pytest.mark.parametrize("header", [b"n,,", b"n,a=eve,"])
def test_a_refused_client_reads_why_before_it_fails(header: bytes) -> None:
    token = b"bad" if header == b"n,," else b"good"
    exchange = OauthBearerExchange(check)
    answer = stepped(exchange, header + b"\x01auth=Bearer " + token + b"\x01\x01")
    assert isinstance(answer, Challenge)
    assert json.loads(answer.message) == {"status": "invalid_token"}
    with pytest.raises(SaslFailed, match="the token is not valid") as failed:
        stepped(exchange, b"\x01")
    assert failed.value.detail


@given(st.binary(max_size=200) | st.text("n,ya=\x01uthBearer god", max_size=60).map(str.encode))
def test_no_other_message_is_accepted(message: bytes) -> None:
    exchange = OauthBearerExchange(check)
    try:
        found = stepped(exchange, message)
    except SaslFailed:
        return
    is_good = b" good\x01" in message.lower()
    assert found == Accepted("ada") if is_good else isinstance(found, Challenge)


# Settings


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "needs the keys of the issuer"),
        ({"sasl_oauthbearer_jwks": "http://issuer.example/keys"}, "can be anyone's"),
        ({"sasl_oauthbearer_jwks": "ftp://127.0.0.1:21/keys"}, "can be anyone's"),
        ({"sasl_oauthbearer_jwks": "http://127.0.0.1.evil.example/keys"}, "can be anyone's"),
        ({"sasl_oauthbearer_jwks": "http://127.0.0.1:80@evil.example/keys"}, "no user and no"),
        ({"sasl_oauthbearer_jwks": "https://ada:pencil@issuer.example/keys"}, "no user and no"),
        ({"sasl_oauthbearer_jwks": "https://issuer.example:keys"}, "is no address"),
        ({"sasl_oauthbearer_jwks": "https://[::1/keys"}, "is no address"),
        ({"sasl_oauthbearer_jwks": "https:///keys"}, "is no address of a host"),
        ({"sasl_oauthbearer_jwks": "https://issuer.example/a b"}, "is no address of a host"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, str], why: str) -> None:
    flags = {"sasl_mechanisms": "OAUTHBEARER", **settings}
    with pytest.raises(ConfigError, match=why) as refused:
        load(toml=None, toml_name="", environment={}, flags=flags)
    assert "pencil" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "https://issuer.example/keys?x=a@b",
        "HTTPS://issuer.example",
        "http://localhost:80/keys",
        "http://127.0.0.1/keys",
        "http://[::1]:8080/keys",
    ],
)
def test_keys_may_be_at_an_address_that_nobody_else_can_answer_for(address: str) -> None:
    flags = {"sasl_mechanisms": "OAUTHBEARER", "sasl_oauthbearer_jwks": address}
    config = load(toml=None, toml_name="", environment={}, flags=flags)
    assert config.sasl_oauthbearer_jwks == address


# A broker


@pytest.fixture
async def broker(
    certificates: Certificates, tmp_path: Path, issuer: Issuer
) -> AsyncIterator[Broker]:
    async with Broker(
        listen="127.0.0.1:0, sasl://127.0.0.1:0, sasl+tls://127.0.0.1:0",
        tls_certificate=certificates.broker,
        sasl_mechanisms="OAUTHBEARER, SCRAM-SHA-256",
        sasl_oauthbearer_jwks=write_keys(tmp_path / "keys.json", issuer),
        sasl_oauthbearer_expected_audience=AUDIENCE,
        sasl_oauthbearer_expected_issuer=NAME,
        failed_authentication_delay_ms=0,
        super_users="User:ada",
    ) as running:
        yield running


async def test_a_client_with_a_token_is_its_user(
    broker: Broker, certificates: Certificates, issuer: Issuer
) -> None:
    servers = broker.servers_of("sasl-tls")
    asked = []

    async def new_token() -> str:
        asked.append(1)
        return issuer.token()

    async with Admin(servers, token=new_token, tls_ca=certificates.ca) as admin:
        # Only a super user may.
        await admin.create_topic("t")
    assert asked
    wrong = (issuer.token(sub="eve"), issuer.token(aud="other"), issuer.token(lifetime_s=-60))
    for token in wrong:
        with pytest.raises(BrokerError, match=r"no right|the token is not valid"):
            async with Admin(servers, token=token, tls_ca=certificates.ca) as admin:
                await admin.create_topic("u")


async def test_a_refusal_tells_the_broker_more_than_the_client(
    broker: Broker, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    token = Issuer().token()
    with pytest.raises(AuthenticationFailed, match=r"the token is not valid$"):
        servers = broker.servers_of("sasl-tls")
        async with Admin(servers, token=token, tls_ca=certificates.ca) as admin:
            await admin.list_topics()
    (line,) = [each for each in caplog.messages if "authentication failed" in each]
    assert "its signature is not right" in line
    assert token not in caplog.text


async def test_a_session_ends_with_its_token(
    broker: Broker, certificates: Certificates, issuer: Issuer
) -> None:
    """The client authenticates again before, with the next token."""
    tokens = []

    def new_token() -> str:
        tokens.append(issuer.token(lifetime_s=2 - SKEW_S))
        return tokens[-1]

    servers = broker.servers_of("sasl-tls")
    async with Admin(servers, token=new_token, tls_ca=certificates.ca) as admin:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            await admin.list_topics()
            first = len(tokens)
            while len(tokens) == first:
                await admin.list_topics()


async def test_librdkafka_with_a_token(
    broker: Broker, certificates: Certificates, issuer: Issuer
) -> None:
    def new_token(_: str) -> tuple[str, float]:
        return issuer.token(), time.time() + 600

    def work() -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.servers_of("sasl-tls").removeprefix("tls://"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": certificates.ca,
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": new_token,
        }
        producer = confluent_kafka.Producer(settings)
        producer.poll(0)
        producer.produce("t", b"v")
        assert producer.flush(HANG_TIMEOUT_S) == 0

    servers, token = broker.servers_of("sasl-tls"), issuer.token()
    async with Admin(servers, token=token, tls_ca=certificates.ca) as admin:
        await admin.create_topic("t")
    await asyncio.to_thread(work)
    assert broker.node.broker.partitions.get("t", 0).log.end_offset == 1


async def test_a_slow_issuer_holds_up_no_other_login(
    certificates: Certificates, issuer: Issuer
) -> None:
    """As many clients as there are threads for slow logins wait, and one more."""
    may_answer, web = threading.Event(), WebServer()

    def answer_late(connection: socket.socket) -> None:
        may_answer.wait()
        connection.sendall(OK + b"\r\n" + key_set(issuer).encode())

    async def topics(servers: str, **login: Any) -> object:
        async with Admin(servers, tls_ca=certificates.ca, **login) as admin:
            return await admin.list_topics()

    web.answer = answer_late
    try:
        async with Broker(
            listen="127.0.0.1:0, sasl+tls://127.0.0.1:0",
            tls_certificate=certificates.broker,
            sasl_mechanisms="OAUTHBEARER, PLAIN",
            sasl_oauthbearer_jwks=web.address,
            authorization="off",
        ) as running:
            async with Admin(running.servers) as admin:
                await admin.set_password("bob", "pencil")
            servers = running.servers_of("sasl-tls")
            waiting = [
                asyncio.create_task(topics(servers, token=issuer.token()))
                for _ in range(SLOW_STEPS_MAX + 1)
            ]
            await asyncio.to_thread(web.asked, 1)
            login = {"username": "bob", "password": "pencil", "sasl_mechanism": "PLAIN"}
            async with asyncio.timeout(HANG_TIMEOUT_S):
                await topics(servers, **login)
                assert not any(each.done() for each in waiting)
                may_answer.set()
                await asyncio.gather(*waiting)
            assert len(web.requests) == 1
    finally:
        may_answer.set()
        web.close()
