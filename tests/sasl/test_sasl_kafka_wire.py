"""SASL in Kafka's protocol, frame by frame: what Kafka answers, and when it closes."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from millrace import Admin
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import scram_credentials as users
from millrace_protocol.kafka.api_versions import ApiVersionsRequest
from millrace_protocol.kafka.metadata import MetadataRequest
from millrace_protocol.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from millrace_protocol.scram import ScramMechanism, salt_password
from millrace_server.testing import Broker
from tests.kafka.kafka_wire import KafkaWire, connect_kafka
from tests.sasl.conftest import PASSWORD, USER, port_of
from tests.sasl.test_sasl_listeners import SHA_256, scram_client
from tests.tls.conftest import Certificates

ALL = MetadataRequest(())
SALT = b"0123456789abcdef"
SALTED = salt_password(ScramMechanism.SCRAM_SHA_256, PASSWORD, SALT, 4096)


async def log_in(wire: KafkaWire, version: int = 2, scram: Any = None) -> Any:
    scram = scram or scram_client()
    handshake = await wire.call(SaslHandshakeRequest(SHA_256), 1)
    assert handshake.error_code == ErrorCode.NONE
    first = await wire.call(SaslAuthenticateRequest(scram.first()), version)
    assert (first.error_code, first.session_lifetime_ms) == (ErrorCode.NONE, 0)
    return await wire.call(SaslAuthenticateRequest(scram.final(first.auth_bytes)), version)


@pytest.mark.parametrize("version", range(3))
async def test_a_client_that_has_authenticated_may_ask(broker: Broker, version: int) -> None:
    async with connect_kafka(port_of(broker, "sasl")) as wire:
        await wire.call(ApiVersionsRequest("test", "1"), 3)
        last = await log_in(wire, version)
        assert last.error_code == ErrorCode.NONE
        assert (await wire.call(ALL, 12)).error_code == ErrorCode.NONE
        # A frame may have more than 64 KiB now.
        await wire.call(ALL, 12, more=bytes(100_000))


async def test_the_tokens_of_the_first_version_have_no_headers(broker: Broker) -> None:
    async with connect_kafka(port_of(broker, "sasl")) as wire:
        scram = scram_client()
        assert (await wire.call(SaslHandshakeRequest(SHA_256), 0)).error_code == ErrorCode.NONE
        message = scram.first()
        wire.write(len(message).to_bytes(4, "big") + message)
        message = scram.final(await wire.some_response())
        wire.write(len(message).to_bytes(4, "big") + message)
        scram.check(await wire.some_response())
        assert (await wire.call(ALL, 12)).error_code == ErrorCode.NONE


async def test_a_token_without_a_header_is_as_short_as_a_name_and_a_password(
    broker: Broker, certificates: Certificates
) -> None:
    async with Admin(broker.servers) as admin:
        await admin.set_password("u", "p")
    tls = ssl.create_default_context(cafile=certificates.ca)
    async with connect_kafka(port_of(broker, "sasl-tls"), tls=tls) as wire:
        await wire.call(SaslHandshakeRequest("PLAIN"), 0)
        wire.write(b"\0\0\0\x04\0u\0p")
        assert await wire.some_response() == b""
        assert (await wire.call(ALL, 12)).error_code == ErrorCode.NONE


async def test_a_wrong_token_without_a_header_closes_the_connection(broker: Broker) -> None:
    async with connect_kafka(port_of(broker, "sasl")) as wire:
        await wire.call(SaslHandshakeRequest(SHA_256), 0)
        wire.write(b"\0\0\0\x09something")
        assert await wire.until_closed() == b""


@pytest.mark.parametrize("user", [USER, "nobody"])
async def test_a_failed_login_is_answered_and_closes_the_connection(
    broker: Broker, user: str
) -> None:
    """W-4.38.3"""
    async with connect_kafka(port_of(broker, "sasl")) as wire:
        last = await log_in(wire, scram=scram_client(user, "wrong"))
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert last.error_message.startswith("Authentication failed with SASL mechanism SCRAM")
        assert await wire.until_closed() == b""


async def test_another_request_before_closes_the_connection(broker: Broker) -> None:
    for handshakes in range(2):
        async with connect_kafka(port_of(broker, "sasl")) as wire:
            for _ in range(handshakes):
                await wire.call(SaslHandshakeRequest(SHA_256), 1)
            await wire.send(ALL, 12)
            assert await wire.until_closed() == b""


async def test_a_mechanism_that_is_not_there_is_refused_with_those_that_are(
    broker: Broker,
) -> None:
    for listener, mechanisms in (
        ("sasl", ("SCRAM-SHA-256", "SCRAM-SHA-512")),
        ("plain", ()),
    ):
        async with connect_kafka(port_of(broker, listener)) as wire:
            answer = await wire.call(SaslHandshakeRequest("PLAIN"), 1)
            assert answer.mechanisms == mechanisms
            if listener == "sasl":
                assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
                assert await wire.until_closed() == b""
            else:
                assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
                assert (await wire.call(ALL, 12)).error_code == ErrorCode.NONE


async def test_a_second_handshake_and_a_step_without_one_are_out_of_order(broker: Broker) -> None:
    async with connect_kafka(port_of(broker, "sasl")) as wire:
        await wire.call(SaslHandshakeRequest(SHA_256), 1)
        answer = await wire.call(SaslHandshakeRequest(SHA_256), 1)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await wire.until_closed() == b""
    async with connect_kafka(port_of(broker, "sasl")) as wire:
        answer = await wire.call(SaslAuthenticateRequest(b"n,,n=a,r=x"), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await wire.until_closed() == b""


async def test_a_frame_that_is_too_long_before_closes_the_connection(broker: Broker) -> None:
    """W-6.1"""
    async with connect_kafka(port_of(broker, "sasl")) as wire:
        await wire.call(ApiVersionsRequest("test", "1"), 3)
        await wire.send(SaslAuthenticateRequest(bytes(100_000)), 2)
        assert await wire.until_closed() == b""


async def test_users_are_set_described_and_removed(broker: Broker) -> None:
    upsertion = users.ScramCredentialUpsertion("bob", 1, 8192, SALT, SALTED)
    async with connect_kafka(broker.port) as wire:

        async def describe(*names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
            wanted = tuple(users.UserName(name) for name in names)
            answer = await wire.call(users.DescribeUserScramCredentialsRequest(wanted), 0)
            return [
                (u.user, u.error_code, [(c.mechanism, c.iterations) for c in u.credential_infos])
                for u in answer.results
            ]

        async def alter(*changes: Any) -> list[tuple[str, int]]:
            deletions = tuple(
                each for each in changes if isinstance(each, users.ScramCredentialDeletion)
            )
            rest = tuple(each for each in changes if each not in deletions)
            answer = await wire.call(users.AlterUserScramCredentialsRequest(deletions, rest), 0)
            return [(each.user, each.error_code) for each in answer.results]

        assert await alter(upsertion) == [("bob", 0)]
        both = [(1, 4096), (2, 4096)]
        assert await describe() == [(USER, 0, both), ("bob", 0, [(1, 8192)])]
        assert await describe("bob", "nobody", USER, USER) == [
            ("bob", 0, [(1, 8192)]),
            ("nobody", ErrorCode.RESOURCE_NOT_FOUND, []),
            (USER, ErrorCode.DUPLICATE_RESOURCE, []),
        ]
        deletion = users.ScramCredentialDeletion("bob", 1)
        assert await alter(deletion, users.ScramCredentialDeletion("nobody", 1)) == [
            ("bob", 0),
            ("nobody", ErrorCode.RESOURCE_NOT_FOUND),
        ]
        assert await describe() == [(USER, 0, both)]
        many = [users.ScramCredentialDeletion(f"u{number}", 1) for number in range(101)]
        assert {code for _, code in await alter(*many)} == {ErrorCode.INVALID_REQUEST}
