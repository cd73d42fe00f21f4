"""Authenticate on a real socket: what a client may do before it, and what ends the connection."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from millrace import Admin
from millrace._cluster.scram_client import ScramClient
from millrace.quotas import QuotaEntity
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.authenticate import AuthenticateRequest, AuthenticateResponse
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.messages.hello import HelloRequest, HelloResponse
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.scram import SCRAM_MECHANISMS
from millrace_server.limits import Limits
from millrace_server.services.authentication import AuthenticationService
from millrace_server.services.request_context import RequestContext
from millrace_server.testing import Broker
from tests.broker.wire import Wire, batch, connect, fetch_request, until
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.sasl.conftest import PASSWORD, USER, port_of
from tests.tls.conftest import Certificates

SHA_256 = "SCRAM-SHA-256"
LIST = MetadataRequest(None)


def scram_client(user: str = USER, password: str = PASSWORD, mechanism: str = SHA_256) -> Any:
    return ScramClient(SCRAM_MECHANISMS[mechanism], user, password, nonce="abc", salted={})


async def step(wire: Wire, message: bytes, mechanism: str = SHA_256) -> AuthenticateResponse:
    return await wire.ask(AuthenticateRequest(mechanism, message), AuthenticateResponse)


async def log_in(wire: Wire, scram: Any, mechanism: str = SHA_256) -> AuthenticateResponse:
    first = await step(wire, scram.first(), mechanism)
    assert not first.is_complete
    last = await step(wire, scram.final(first.auth_bytes), mechanism)
    assert last.is_complete
    scram.check(last.auth_bytes)
    return last


async def passed_ms(broker: Broker, span_ms: int) -> None:
    """Returns when the broker's clock is so much later."""
    clock = broker.node.broker.env.clock
    ends_ms = clock.monotonic_ms() + span_ms
    await until(lambda: clock.monotonic_ms() > ends_ms)


@pytest.mark.parametrize("mechanism", [SHA_256, "SCRAM-SHA-512"])
async def test_a_client_that_has_authenticated_may_ask(broker: Broker, mechanism: str) -> None:
    """W-4.38"""
    async with connect(port_of(broker, "sasl")) as wire:
        last = await log_in(wire, scram_client(mechanism=mechanism), mechanism)
        assert last.session_lifetime_ms == 0
        assert (await wire.create("t")).error_code == 0
        # Frames may be as long as on another connection.
        assert (await wire.produce("t", batch(bytes(200_000)))).error_code == 0


async def test_another_request_before_is_refused_and_ends_the_connection(broker: Broker) -> None:
    """W-4.38.1, W-6.6"""
    async with connect(port_of(broker, "sasl")) as wire:
        code, message = await wire.refused(LIST)
        assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "listener 'sasl'" in message
        assert "SCRAM-SHA-256 or SCRAM-SHA-512" in message
        assert await wire.closed() == b""


async def test_a_request_behind_the_last_step_is_not_answered_before_it_is_proved(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-4.38.1"""
    is_taken = asyncio.Event()
    check, note_failed = AuthenticationService.check_may_request, AuthenticationService._note_failed

    def checked(service: AuthenticationService, context: RequestContext) -> None:
        is_taken.set()
        check(service, context)

    async def noted(service: AuthenticationService, *failure: Any) -> None:
        # The step may be refused, and the connection closed, before the broker takes the request.
        await is_taken.wait()
        await note_failed(service, *failure)

    monkeypatch.setattr(AuthenticationService, "check_may_request", checked)
    monkeypatch.setattr(AuthenticationService, "_note_failed", noted)
    async with connect(port_of(broker, "sasl")) as wire:
        scram = scram_client(password="wrong")
        first = await step(wire, scram.first())
        wire.send(AuthenticateRequest(SHA_256, scram.final(first.auth_bytes)))
        wire.send(LIST)
        for _ in range(2):
            code, _ = await wire.refusal()
            assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await wire.closed() == b""


@pytest.mark.parametrize("user", [USER, "nobody"])
async def test_a_failed_login_is_refused_and_ends_the_connection(broker: Broker, user: str) -> None:
    """W-4.38.2, W-4.38.3"""
    async with connect(port_of(broker, "sasl")) as wire:
        scram = scram_client(user, "wrong")
        first = await step(wire, scram.first())
        code, message = await wire.refused(
            AuthenticateRequest(SHA_256, scram.final(first.auth_bytes))
        )
        assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert message == (
            "Authentication failed with SASL mechanism SCRAM-SHA-256: the user or the password is "
            "wrong"
        )
        assert await wire.closed() == b""


async def test_a_name_without_a_user_gets_the_same_salt_from_one_connection_to_the_next(
    broker: Broker,
) -> None:
    """W-4.38.3"""
    salts = set()
    for _ in range(2):
        async with connect(port_of(broker, "sasl")) as wire:
            first = await step(wire, b"n,,n=nobody,r=x")
            salts.add(first.auth_bytes.split(b",")[1:][0])
        await broker.restart()
    assert len(salts) == 1


async def test_a_mechanism_that_the_listener_does_not_have_is_refused(broker: Broker) -> None:
    """W-4.38.2, W-4.38.5: PLAIN is offered with TLS only."""
    for mechanism, hint in (("PLAIN", ", which needs TLS"), ("GSSAPI", "")):
        async with connect(port_of(broker, "sasl")) as wire:
            code, message = await wire.refused(AuthenticateRequest(mechanism, b"\0a\0b"))
            assert code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert message == (
                f"Listener 'sasl' has no SASL mechanism '{mechanism}'{hint}; it has SCRAM-SHA-256, "
                "SCRAM-SHA-512"
            )
            assert await wire.closed() == b""


async def test_one_exchange_has_one_mechanism(broker: Broker) -> None:
    """W-4.38.2"""
    async with connect(port_of(broker, "sasl")) as wire:
        await step(wire, b"n,,n=nobody,r=x")
        code, message = await wire.refused(AuthenticateRequest("SCRAM-SHA-512", b"n,,n=a,r=x"))
        assert code is ErrorCode.ILLEGAL_SASL_STATE
        assert "SCRAM-SHA-256 is in progress" in message
        assert await wire.closed() == b""


async def test_a_listener_without_sasl_refuses_and_goes_on(broker: Broker) -> None:
    """W-4.38.2"""
    async with connect(broker.port) as wire:
        code, _ = await wire.refused(AuthenticateRequest(SHA_256, b"n,,n=a,r=x"))
        assert code is ErrorCode.ILLEGAL_SASL_STATE
        assert (await wire.ask(LIST, MetadataResponse)).topics == ()


async def test_a_session_without_an_end_cannot_be_renewed(broker: Broker) -> None:
    """W-4.38.2"""
    async with connect(port_of(broker, "sasl")) as wire:
        await log_in(wire, scram_client())
        code, _ = await wire.refused(AuthenticateRequest(SHA_256, b"n,,n=a,r=x"))
        assert code is ErrorCode.ILLEGAL_SASL_STATE
        assert (await wire.ask(LIST, MetadataResponse)).topics == ()


async def test_frames_stay_short_until_the_client_has_authenticated(broker: Broker) -> None:
    """W-6.1"""
    async with connect(port_of(broker, "sasl")) as wire:
        wire.send_body(36, bytes(100_000))
        code, _ = await wire.refusal()
        assert code is ErrorCode.FRAME_TOO_LARGE
        assert await wire.closed() == b""


async def test_a_client_that_does_not_authenticate_in_time_is_closed() -> None:
    """W-6.1: however often it says Hello."""
    limits = Limits(authentication_timeout_ms=1, linger_ms=100)
    async with (
        Broker(listen="sasl://127.0.0.1:0", authorization="off", limits=limits) as running,
        connect(running.port) as wire,
    ):
        async with asyncio.timeout(HANG_TIMEOUT_S):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                while True:
                    await wire.ask(HelloRequest("x", "1"), HelloResponse)


async def test_a_session_ends_and_is_renewed_by_the_same_user_only() -> None:
    """W-4.38.4"""
    async with Broker(
        authorization="off",
        listen="127.0.0.1:0, sasl://127.0.0.1:0",
        connections_max_reauth_ms=3_600_000,
        failed_authentication_delay_ms=0,
    ) as running:
        async with Admin(running.servers) as admin:
            await admin.set_password(USER, PASSWORD)
            await admin.set_password("bob", PASSWORD)
        async with connect(port_of(running, "sasl")) as wire:
            assert (await log_in(wire, scram_client())).session_lifetime_ms == 3_600_000
            assert (await log_in(wire, scram_client())).session_lifetime_ms == 3_600_000
            assert (await wire.ask(LIST, MetadataResponse)).topics == ()
            scram = scram_client("bob")
            first = await step(wire, scram.first())
            code, message = await wire.refused(
                AuthenticateRequest(SHA_256, scram.final(first.auth_bytes))
            )
            assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "and stays so" in message
            assert await wire.closed() == b""


async def test_a_request_after_the_end_of_the_session_ends_the_connection() -> None:
    """W-4.38.4"""
    async with Broker(
        authorization="off", listen="127.0.0.1:0, sasl://127.0.0.1:0", connections_max_reauth_ms=1
    ) as running:
        async with Admin(running.servers) as admin:
            await admin.set_password(USER, PASSWORD)
        async with connect(port_of(running, "sasl")) as wire:
            await log_in(wire, scram_client())
            await passed_ms(running, 2)
            await log_in(wire, scram_client())
            await passed_ms(running, 2)
            code, message = await wire.refused(LIST)
            assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "session of the client has ended" in message
            assert await wire.closed() == b""


async def test_a_failed_login_is_answered_after_the_delay_and_holds_up_no_other() -> None:
    """W-4.38.2: as long as one waits, others are answered."""
    async with Broker(
        authorization="off",
        listen="127.0.0.1:0, sasl://127.0.0.1:0",
        failed_authentication_delay_ms=3_600_000,
    ) as running:
        async with Admin(running.servers) as admin:
            await admin.set_password(USER, PASSWORD)
        port = port_of(running, "sasl")
        async with connect(port) as failed, connect(port) as other:
            failed.send(AuthenticateRequest(SHA_256, b"nothing"))
            await failed.writer.drain()
            waiting = asyncio.create_task(failed.refusal())
            await log_in(other, scram_client())
            assert (await other.ask(LIST, MetadataResponse)).topics == ()
            assert not waiting.done()
            waiting.cancel()


async def test_quotas_of_anonymous_clients_hold_up_no_login(broker: Broker) -> None:
    # The first request of an anonymous client uses up its time for the rest of the test.
    anonymous = QuotaEntity(user="ANONYMOUS")
    async with Admin(broker.servers) as admin:
        (await admin.alter_quotas({anonymous: {"request_percentage": 0.001}}))[anonymous].unwrap()
    for _ in range(2):
        async with asyncio.timeout(HANG_TIMEOUT_S), connect(port_of(broker, "sasl")) as wire:
            await log_in(wire, scram_client())
            await wire.topics()


async def test_a_removed_user_keeps_its_connections_and_makes_no_new_ones(broker: Broker) -> None:
    """W-4.40.2"""
    port = port_of(broker, "sasl")
    async with connect(port) as before, Admin(broker.servers) as admin:
        await log_in(before, scram_client())
        await admin.delete_user(USER)
        assert (await before.ask(LIST, MetadataResponse)).topics == ()
        async with connect(port) as after:
            scram = scram_client()
            first = await step(after, scram.first())
            code, _ = await after.refused(
                AuthenticateRequest(SHA_256, scram.final(first.auth_bytes))
            )
            assert code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_users_are_there_after_a_restart(broker: Broker) -> None:
    """W-9.5"""
    await broker.restart()
    async with connect(port_of(broker, "sasl")) as wire:
        await log_in(wire, scram_client())


# Lines


async def lines(broker: Broker, certificates: Certificates | None, *typed: str) -> list[str]:
    """The answers to typed lines, until the broker closes."""
    context = None
    if certificates is not None:
        context = ssl.create_default_context(cafile=certificates.ca)
    port = port_of(broker, "sasl" if certificates is None else "sasl-tls")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write("".join(f"{line}\n" for line in typed).encode())
        async with asyncio.timeout(HANG_TIMEOUT_S):
            return (await reader.read()).decode().splitlines()
    finally:
        writer.close()


async def test_a_name_and_a_password_are_typed_with_tls(
    broker: Broker, certificates: Certificates
) -> None:
    """W-8.3"""
    async with Admin(broker.servers) as admin:
        await admin.set_password("bob", "a b c")
    assert await lines(broker, certificates, "auth plain bob a b c", "TOPICS", "QUIT") == [
        "OK authenticated as User:bob",
        "OK 0 topics",
        "OK bye",
    ]
    (answer,) = await lines(broker, certificates, "AUTH PLAIN bob wrong", "TOPICS")
    assert answer.startswith("ERR SASL_AUTHENTICATION_FAILED Authentication failed")
    (answer,) = await lines(broker, None, "AUTH PLAIN bob a b c", "TOPICS")
    assert answer.startswith("ERR UNSUPPORTED_SASL_MECHANISM")


SESSION_ENDED = (
    "ERR SASL_AUTHENTICATION_FAILED The session of the client has ended; authenticate again "
    "before its end"
)


@asynccontextmanager
async def broker_with_sessions(certificates: Certificates, span_ms: int) -> AsyncIterator[Broker]:
    """A broker with bob and a topic `t`, whose clients have sessions of `span_ms`."""
    async with Broker(
        authorization="off",
        listen="127.0.0.1:0, sasl+tls://127.0.0.1:0",
        tls_certificate=certificates.broker,
        sasl_mechanisms="PLAIN",
        connections_max_reauth_ms=span_ms,
    ) as running:
        async with Admin(running.servers) as admin:
            await admin.set_password("bob", "pencil")
            await admin.create_topic("t")
        yield running


async def test_a_fetch_that_waits_ends_with_the_session() -> None:
    """W-4.38.4"""
    listen = "127.0.0.1:0, sasl://127.0.0.1:0"
    async with Broker(listen=listen, authorization="off", connections_max_reauth_ms=300) as running:
        async with Admin(running.servers) as admin:
            await admin.set_password(USER, PASSWORD)
            await admin.create_topic("t")
        async with asyncio.timeout(HANG_TIMEOUT_S), connect(port_of(running, "sasl")) as wire:
            await log_in(wire, scram_client())
            request = fetch_request([("t", 0, 0)], max_wait_ms=300_000)
            (result,) = (await wire.ask(request, FetchResponse)).partitions
        assert (result.error_code, len(result.records)) == (0, 0)


async def test_a_tail_without_records_ends_with_the_session(certificates: Certificates) -> None:
    """W-4.38.4, W-8.3"""
    async with broker_with_sessions(certificates, 200) as running:
        assert await lines(running, certificates, "AUTH PLAIN bob pencil", "TAIL t 0") == [
            "OK authenticated as User:bob",
            SESSION_ENDED,
        ]


async def test_a_tail_sends_no_record_after_the_end_of_the_session(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-4.38.4, W-8.3"""
    async with broker_with_sessions(certificates, 3_600_000) as running:
        following = asyncio.create_task(
            lines(running, certificates, "AUTH PLAIN bob pencil", "TAIL t 0")
        )
        partition = running.node.broker.partitions.get("t", 0)
        await until(lambda: len(partition.watchers) == 1)
        authentication = running.node.broker.services.authentication
        later_ms = authentication._now_ms() + 3_600_000
        monkeypatch.setattr(authentication, "_now_ms", lambda: later_ms)
        async with connect(running.port) as wire:
            await wire.produce("t", batch(b"secret"))
        assert await following == ["OK authenticated as User:bob", SESSION_ENDED]


@pytest.mark.parametrize("line", ["TOPICS", "TAIL t 0", "PRODUCE t 0 v", "STATS"])
async def test_another_command_before_is_refused_and_ends_the_connection(
    broker: Broker, line: str
) -> None:
    """W-8.3"""
    *listed, answer = await lines(broker, None, "HELP", line, "TOPICS")
    assert "OK" in listed
    assert answer.startswith("ERR SASL_AUTHENTICATION_FAILED The client has not authenticated")


async def test_the_messages_of_scram_are_typed_in_base64(broker: Broker) -> None:
    """W-8.3"""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker, "sasl"))
    scram = scram_client()
    found = []
    message = scram.first()
    for _ in range(2):
        writer.write(b"AUTH SCRAM-SHA-256 " + b64encode(message) + b"\n")
        async with asyncio.timeout(HANG_TIMEOUT_S):
            found.append((await reader.readline()).decode().split())
        if len(found) == 1:
            message = scram.final(b64decode(found[0][1]))
    scram.check(b64decode(found[1][1]))
    assert found[1][2:] == ["authenticated", "as", f"User:{USER}".split()[0], USER.split()[1]]
    writer.write(b"AUTH SCRAM-SHA-256 *\n")
    async with asyncio.timeout(HANG_TIMEOUT_S):
        assert b"not base64" in await reader.readline()
    writer.close()
