"""One user uses up its share of what all clients of a broker share, and the others go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from millrace import Admin
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.authenticate import AuthenticateRequest
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
)
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_server.group_config import GroupConfig
from millrace_server.limits import Limits
from millrace_server.services.fetch import ENTRIES_PER_FETCH, FEW_ENTRIES
from millrace_server.testing import Broker
from tests.access.conftest import ROOT
from tests.broker.wire import Wire, connect, until
from tests.sasl.conftest import PASSWORD, SIMPLE_USER, USER, port_of
from tests.sasl.test_sasl_listeners import SHA_256, log_in, scram_client, step

CONNECTIONS_MAX = 8
SHARE = CONNECTIONS_MAX // 2
GROUP_MEMORY_BYTES = 400_000
SUBSCRIPTION = bytes(50_000)
MANY_IDS = GroupConfig().pending_members_max + 1
"""More than all clients of a broker may have together."""
IDS_AT_ONCE = 50


@asynccontextmanager
async def broker_with_users(percent: int = 50) -> AsyncIterator[Broker]:
    """With few connections, two users and `ROOT`, a super user; every user has all rights."""
    async with Broker(
        listen="127.0.0.1:0, sasl://127.0.0.1:0",
        authorization="off",
        super_users=f"User:{ROOT}",
        limits=Limits(connections_max=CONNECTIONS_MAX),
        principal_share_percent=percent,
        offsets_topic_partitions=1,
        group_initial_rebalance_delay_ms=0,
        group_memory_max_bytes=GROUP_MEMORY_BYTES,
    ) as running:
        async with Admin(running.servers) as admin:
            for name in (USER, SIMPLE_USER, ROOT):
                await admin.set_password(name, PASSWORD)
        await until(lambda: not running.node.server.connections)
        yield running


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with broker_with_users() as running:
        yield running


async def logged_in(stack: AsyncExitStack, broker: Broker, user: str) -> Wire:
    """A connection of a user."""
    wire = await stack.enter_async_context(connect(port_of(broker, "sasl")))
    await log_in(wire, scram_client(user))
    return wire


async def refused_login(broker: Broker, user: str) -> str:
    """The reason why a user that has proved its password gets no connection."""
    async with connect(port_of(broker, "sasl")) as wire:
        scram = scram_client(user)
        first = await step(wire, scram.first())
        code, reason = await wire.refused(
            AuthenticateRequest(SHA_256, scram.final(first.auth_bytes))
        )
        assert code is ErrorCode.BROKER_STOPPING
        assert await wire.closed() == b""
    return reason


async def test_a_user_has_a_share_of_the_connections_and_leaves_the_rest(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        wires = [await logged_in(stack, broker, USER) for _ in range(SHARE)]
        reason = await refused_login(broker, USER)
        assert f"User:{USER} has {SHARE} connections" in reason
        assert "principal_share_percent" in reason
        await logged_in(stack, broker, SIMPLE_USER)
        wires[0].reset()
        await until(lambda: len(broker.node.server.connections) == SHARE)
        await logged_in(stack, broker, USER)


async def test_clients_without_a_name_have_one_share_of_the_connections(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        plain = port_of(broker, "plain")
        for _ in range(SHARE):
            await stack.enter_async_context(connect(plain))
        async with connect(plain, hello=False) as one_more:
            code, reason = await one_more.refused(MetadataRequest(()))
            assert code is ErrorCode.BROKER_STOPPING
            assert f"User:ANONYMOUS has {SHARE} connections" in reason
        await logged_in(stack, broker, USER)


async def test_clients_that_do_not_authenticate_keep_no_other_out(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(connect(port_of(broker, "sasl")))
            for _ in range(2 * CONNECTIONS_MAX)
        ]
        assert await silent[0].closed() == b"", "the oldest has made room"
        wire = await logged_in(stack, broker, USER)
        assert await wire.topics() == []


async def test_a_super_user_may_use_all_connections(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            await logged_in(stack, broker, ROOT)


async def test_the_share_is_a_setting() -> None:
    async with broker_with_users(25) as broker, AsyncExitStack() as stack:
        for _ in range(CONNECTIONS_MAX // 4):
            await logged_in(stack, broker, USER)
        assert "its share" in await refused_login(broker, USER)


async def test_without_authentication_one_client_may_use_all_connections() -> None:
    async with (
        Broker(limits=Limits(connections_max=CONNECTIONS_MAX)) as broker,
        AsyncExitStack() as stack,
    ):
        for _ in range(CONNECTIONS_MAX):
            wire = await stack.enter_async_context(connect(broker.port))
            assert await wire.topics() == []


def joining(group: str, *, member_id: str = "", instance_id: str | None = None) -> JoinGroupRequest:
    """The join of a member; with an instance id it needs no member id first."""
    protocol = JoinProtocol("range", SUBSCRIPTION if instance_id else b"")
    return JoinGroupRequest(
        group, 600_000, 600_000, member_id, instance_id, "consumer", (protocol,), None
    )


async def found_coordinator(wire: Wire) -> None:
    """Makes the broker the coordinator of all groups."""
    found = await wire.ask(FindCoordinatorRequest(("any",)), FindCoordinatorResponse)
    assert found.coordinators[0].error_code == 0


async def test_a_user_has_a_share_of_what_groups_take_in_memory(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        ada = await logged_in(stack, broker, USER)
        await found_coordinator(ada)
        for group in ("a", "b", "c"):
            joined = await ada.ask(joining(group, instance_id="one"), JoinGroupResponse)
            assert joined.generation == 1
        code, reason = await ada.refused(joining("d", instance_id="one"))
        assert code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert f"The groups of User:{USER}" in reason
        assert "principal_share_percent" in reason
        other = await logged_in(stack, broker, SIMPLE_USER)
        joined = await other.ask(joining("d", instance_id="one"), JoinGroupResponse)
        assert joined.generation == 1


async def test_a_user_that_asks_for_many_member_ids_takes_none_from_others(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        other = await logged_in(stack, broker, SIMPLE_USER)
        await found_coordinator(other)
        given = await other.ask(joining("hourly"), JoinGroupResponse)
        ada = await logged_in(stack, broker, USER)
        for _ in range(0, MANY_IDS, IDS_AT_ONCE):
            sent = [ada.send(joining("many")) for _ in range(IDS_AT_ONCE)]
            for each in sent:
                assert (await ada.answer(JoinGroupResponse, sent=each)).member_id
        joined = await other.ask(joining("hourly", member_id=given.member_id), JoinGroupResponse)
        assert joined.generation == 1


async def test_a_user_has_a_share_of_the_fetches_that_wait(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = FetchPartition("t", 0, -1, 0, 1_000)
    fetch = FetchRequest(600_000, 1, 1_000, (one,) * (FEW_ENTRIES + 1))
    entries = len(fetch.partitions) + ENTRIES_PER_FETCH
    shares = broker.node.broker.services.fetch._parked_shares
    monkeypatch.setattr(shares, "most", entries)
    async with AsyncExitStack() as stack:
        ada = await logged_in(stack, broker, USER)
        await ada.create("t")
        ada.send(fetch)
        await until(lambda: shares.held(f"User:{USER}") == entries)
        again = await logged_in(stack, broker, USER)
        assert len((await again.ask(fetch, FetchResponse)).partitions) == len(fetch.partitions)
        other = await logged_in(stack, broker, SIMPLE_USER)
        other.send(fetch)
        await until(lambda: shares.held(f"User:{SIMPLE_USER}") == entries)
