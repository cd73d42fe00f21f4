"""Voters of the metadata quorum that are added and removed while the cluster serves."""

from __future__ import annotations

import asyncio
import shutil
import uuid

import pytest

from millrace import Admin
from millrace.errors import BrokerError, BrokerNotRegistered, InvalidRequest, VoterChangeRefused
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.services.request_context import THIS_BROKER
from millrace_server.testing import Broker, Cluster
from tests.broker.wire import until
from tests.cluster.observers import OBSERVER, observing
from tests.cluster.records import create_topic


async def voters(admin: Admin) -> set[int]:
    return {each.node_id for each in (await admin.describe_quorum()).replicas if each.is_voter}


async def leader_but(admin: Admin, old: int) -> int:
    """The leader of the quorum when it is another one."""
    while (leader := (await admin.describe_quorum()).leader) in (None, old):
        pass
    assert leader is not None
    return leader


async def test_a_voter_takes_the_place_of_another_one_and_leads(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    servers = cluster.servers
    async with observing(cluster) as observer, Admin(f"{servers},{observer.servers}") as admin:
        await admin.add_voter(OBSERVER)
        assert await voters(admin) == {1, 2, 3, OBSERVER}
        # The leader removes itself too, and leads no more.
        old = await cluster.controller()
        await admin.remove_voter(old)
        remaining = {1, 2, 3, OBSERVER} - {old}
        assert await leader_but(admin, old) in remaining
        assert await voters(admin) == remaining
        # Of these three one may be lost: the new one counts.
        lost = next(each for each in cluster.brokers if each != old)
        await cluster.kill(lost)
        await create_topic(servers, "after", replication_factor=2)
        await cluster.start(lost)
        # It is no voter any more, so that it may retire.
        await admin.retire_broker(old)
        while await admin.list_partition_reassignments():
            pass
        await observer.restart()
        await create_topic(servers, "later", replication_factor=2)


async def test_a_voter_that_was_wiped_votes_again_under_its_new_identity(
    cluster: Cluster,
) -> None:
    await cluster.wait_until_in_sync()
    async with Admin(cluster.servers) as admin:
        controller = await cluster.controller()
        wiped = next(each for each in cluster.brokers if each != controller)
        old = cluster.brokers[wiped].node.broker.metadata.key.directory_id
        await cluster.kill(wiped)
        shutil.rmtree(cluster.brokers[wiped].data)
        await cluster.start(wiped)
        new = cluster.brokers[wiped].node.broker.metadata.key.directory_id
        with pytest.raises(BrokerError, match=f"votes already, with the directory {old}; remove"):
            await admin.add_voter(wiped)
        with pytest.raises(BrokerError, match="is no voter with") as refused:
            await admin.remove_voter(wiped, directory_id=new)
        assert refused.value.code is ErrorCode.VOTER_NOT_FOUND
        await admin.remove_voter(wiped, directory_id=old)
        assert await voters(admin) == {1, 2, 3} - {wiped}
        await admin.add_voter(wiped, directory_id=new)
        assert await voters(admin) == {1, 2, 3}
        # The wiped one is needed for the majority now.
        other = next(each for each in cluster.brokers if each not in (controller, wiped))
        await cluster.kill(other)
        await create_topic(cluster.servers, "after", replication_factor=2)


async def test_a_change_of_voters_that_cannot_be_says_what_to_do(cluster: Cluster) -> None:
    await cluster.wait_until_in_sync()
    async with Admin(cluster.servers) as admin:
        with pytest.raises(BrokerNotRegistered, match="There is no broker 9; the cluster has 1, 2"):
            await admin.add_voter(9)
        with pytest.raises(BrokerError, match="Broker 1 votes already, with the directory"):
            await admin.add_voter(1)
        with pytest.raises(BrokerError, match="Broker 9 is no voter; the voters are brokers 1, 2"):
            await admin.remove_voter(9)
        with pytest.raises(InvalidRequest, match="leave the directory out"):
            await admin.add_voter(1, directory_id=uuid.UUID(int=9))
        controller = await cluster.controller()
        away, other = (each for each in cluster.brokers if each != controller)
        await cluster.kill(away)
        active = cluster.brokers[controller].node.broker
        role = active.metadata.replica.node.replica

        def is_silent() -> bool:
            since_ms = active.env.clock.monotonic_ms() - role.config.fetch_timeout_ms
            progress = role.role.leadership.progress  # type: ignore[union-attr]
            return all(
                each.fetched_ms < since_ms
                for key, each in progress.items()
                if key.broker_id == away
            )

        await until(is_silent)
        with pytest.raises(VoterChangeRefused, match=f"without broker {other} too few of the"):
            await admin.remove_voter(other)
        assert await voters(admin) == {1, 2, 3}
        # The one that is away can go, and then its vote does not count any more.
        await admin.remove_voter(away)
        assert await voters(admin) == {controller, other}


async def test_a_broker_that_is_behind_gets_no_vote(cluster: Cluster) -> None:
    async with observing(cluster) as observer, Admin(cluster.servers) as admin:
        await observer.stop()
        active = cluster.brokers[await cluster.controller()].node.broker
        replica = active.metadata.replica.node.replica
        key = next(
            key
            for key in replica.role.leadership.progress  # type: ignore[union-attr]
            if key.broker_id == OBSERVER
        )

        def is_behind() -> bool:
            since_ms = active.env.clock.monotonic_ms() - replica.config.fetch_timeout_ms
            progress = replica.role.leadership.progress  # type: ignore[union-attr]
            return progress[key].caught_up_ms < since_ms

        await until(is_behind)
        with pytest.raises(VoterChangeRefused, match="has not caught up with the metadata log"):
            await admin.add_voter(OBSERVER)
        assert await voters(admin) == {1, 2, 3}


async def test_two_changes_are_not_made_at_once(cluster: Cluster) -> None:
    async with observing(cluster), Admin(cluster.servers) as admin:
        controller = await cluster.controller()
        other = next(each for each in cluster.brokers if each != controller)
        service = cluster.brokers[controller].node.broker.services.voters
        first, second = await asyncio.gather(
            service.add(THIS_BROKER, OBSERVER, None),
            service.remove(THIS_BROKER, other, None),
            return_exceptions=True,
        )
        assert first is None
        assert isinstance(second, ApiError)
        assert second.code is ErrorCode.VOTER_CHANGE_REFUSED
        assert "Another change of the voters is not committed yet; try again" in second.message
        assert await voters(admin) == {1, 2, 3, OBSERVER}
        await admin.remove_voter(other)
        assert await voters(admin) == {1, 2, 3, OBSERVER} - {other}


async def test_the_last_voter_is_not_removed() -> None:
    async with Broker(node_id=5) as broker, Admin(broker.servers) as admin:
        with pytest.raises(InvalidRequest, match="Broker 5 is the last voter, and without one"):
            await admin.remove_voter(5)
