"""A session that a token has opened ends with the token, in each dialect (W-4.38.4, KIP-368)."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from millrace import Admin
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import metadata as kafka
from millrace_protocol.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from millrace_protocol.messages.authenticate import AuthenticateRequest, AuthenticateResponse
from millrace_protocol.messages.hello import HelloRequest, HelloResponse
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_server.authentication.oauthbearer import OAUTHBEARER, SKEW_S
from millrace_server.testing import Broker
from tests.broker.wire import Text, Wire, batch, connect, until
from tests.kafka.kafka_wire import KafkaWire
from tests.sasl.conftest import port_of
from tests.sasl.issuer import Issuer, write_keys
from tests.tls.conftest import Certificates

LIFETIME_S = 600
SPAN_MS = (LIFETIME_S + SKEW_S) * 1000
LIST = MetadataRequest(None)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
async def broker(
    certificates: Certificates, tmp_path: Path, issuer: Issuer
) -> AsyncIterator[Broker]:
    async with Broker(
        listen="127.0.0.1:0, sasl+tls://127.0.0.1:0",
        tls_certificate=certificates.broker,
        sasl_mechanisms=OAUTHBEARER,
        sasl_oauthbearer_jwks=write_keys(tmp_path / "keys.json", issuer),
        authorization="off",
    ) as running:
        async with Admin(running.servers) as admin:
            await admin.create_topic("t")
        yield running


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def stream(broker: Broker, certificates: Certificates) -> AsyncIterator[Stream]:
    context = ssl.create_default_context(cafile=certificates.ca)
    port = port_of(broker, "sasl-tls")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    yield reader, writer
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def message(issuer: Issuer) -> bytes:
    token = issuer.token(lifetime_s=LIFETIME_S)
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def let_the_token_expire(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    authentication = broker.node.broker.services.authentication
    later_ms = authentication._now_ms() + SPAN_MS
    monkeypatch.setattr(authentication, "_now_ms", lambda: later_ms)


async def test_a_request_after_the_end_of_the_token_is_refused(
    broker: Broker, stream: Stream, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(*stream, client_id=b"test")
    await wire.ask(HelloRequest("test", "1"), HelloResponse)
    login = AuthenticateRequest(OAUTHBEARER, message(issuer))
    for _ in range(2):
        accepted = await wire.ask(login, AuthenticateResponse)
        assert 0 < accepted.session_lifetime_ms <= SPAN_MS
    assert (await wire.ask(LIST, MetadataResponse)).topics
    let_the_token_expire(broker, monkeypatch)
    code, text = await wire.refused(LIST)
    assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "session of the client has ended" in text
    assert await wire.closed() == b""


async def test_a_request_of_kafka_after_the_end_of_the_token_closes_the_connection(
    broker: Broker, stream: Stream, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = KafkaWire(*stream)
    for _ in range(2):
        handshake = await wire.call(SaslHandshakeRequest(OAUTHBEARER), 1)
        assert handshake.error_code == ErrorCode.NONE
        accepted = await wire.call(SaslAuthenticateRequest(message(issuer)), 2)
        assert accepted.error_code == ErrorCode.NONE
        assert 0 < accepted.session_lifetime_ms <= SPAN_MS
    assert (await wire.call(kafka.MetadataRequest(None), 12)).topics
    let_the_token_expire(broker, monkeypatch)
    await wire.send(kafka.MetadataRequest(None), 12)
    assert await wire.until_closed() == b""


async def test_a_tail_ends_with_the_token(
    broker: Broker, stream: Stream, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Text(*stream)
    login = f"AUTH {OAUTHBEARER} {b64encode(message(issuer)).decode()}"
    assert await text.ask(login) == ["OK authenticated as User:ada"]
    text.type("TAIL t 0")
    partition = broker.node.broker.partitions.get("t", 0)
    await until(lambda: len(partition.watchers) == 1)
    async with connect(broker.port) as other:
        await other.produce("t", batch(b"before"))
        assert (await text.line()).endswith("value before")
        let_the_token_expire(broker, monkeypatch)
        await other.produce("t", batch(b"after"))
    assert (await text.line()).startswith("ERR SASL_AUTHENTICATION_FAILED The session")
    assert await text.reader.read() == b""
    assert not partition.watchers
