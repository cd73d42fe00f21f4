"""A broker ends, and the others neither wait for a timeout nor for each other."""

from __future__ import annotations

import pytest

from millrace import Admin, Consumer, Producer
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_lifecycle import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from millrace_server.controller import cluster_metadata
from millrace_server.raft.config import RaftConfig
from millrace_server.testing import Cluster
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, send
from tests.cluster.settings import SETTINGS

NEVER_MS = 3_600_000


async def test_a_controller_whose_process_ends_is_replaced_before_the_fetch_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patient = RaftConfig(fetch_timeout_ms=NEVER_MS)
    monkeypatch.setattr(cluster_metadata, "RaftConfig", lambda: patient)
    async with Cluster(3, **SETTINGS) as cluster:
        controller = await cluster.controller()
        await cluster.kill(controller)
        assert await cluster.controller() != controller


async def test_a_leader_whose_process_ends_is_replaced_before_its_session_is_over() -> None:
    async with Cluster(3, **{**SETTINGS, "broker_session_timeout_ms": NEVER_MS}) as cluster:
        await create_topic(cluster.servers)
        await cluster.wait_until_in_sync(TOPIC)
        leader = await cluster.leader_of(TOPIC, 0)
        async with Producer(cluster.servers) as producer:
            await send(producer, numbers(0, 10))
            await cluster.kill(leader)
            await send(producer, numbers(10, 20))
        assert await cluster.leader_of(TOPIC, 0) != leader
        assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 20)


async def test_a_broker_that_is_not_the_controller_says_so_at_once(cluster: Cluster) -> None:
    controller = await cluster.controller()
    other = next(b.node.broker for each, b in cluster.brokers.items() if each != controller)
    request = AllocateProducerIdsRequest(1, other.image.brokers[1].epoch, 0)
    answer = await other.requests.handle(request)
    assert isinstance(answer, AllocateProducerIdsResponse)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


async def test_a_heartbeat_is_answered_while_leaders_move(cluster: Cluster) -> None:
    controller = cluster.brokers[await cluster.controller()].node.broker
    stopping = next(b for b in controller.image.brokers.values() if b.is_active)
    offset = controller.image.end_offset
    request = BrokerHeartbeatRequest(stopping.broker_id, stopping.epoch, offset, True)
    async with controller.metadata.publisher._one_at_a_time:
        answer = await controller.requests.handle(request)
        assert isinstance(answer, BrokerHeartbeatResponse)
        assert (answer.error_code, answer.should_shut_down) == (ErrorCode.NONE, False)


async def test_a_leader_that_is_told_again_still_knows_its_followers(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    leader = cluster.brokers[await cluster.leader_of(TOPIC, 0)]
    topic = leader.node.broker.image.topics[TOPIC]
    replicas = leader.node.broker.replicas
    (led,) = [led for key, led in replicas.led.items() if key.topic_id == topic.topic_id]
    await replicas.take_role(topic, 0, led.partition)
    assert replicas.led[led.key] is led


async def test_a_topic_that_is_created_anew_is_read_whatever_epochs_its_name_had() -> None:
    async with Cluster(1, **SETTINGS) as cluster:
        await create_topic(cluster.servers, min_isr=1)
        await cluster.kill()
        await cluster.start()
        async with (
            Producer(cluster.servers) as producer,
            Consumer(
                cluster.servers, TOPIC, on_out_of_range="earliest", fetch_max_wait_ms=1
            ) as consumer,
            Admin(cluster.servers) as admin,
        ):
            await send(producer, [b"old"])
            assert (await consumer.getone()).value == b"old"
            consumer.pause((TOPIC, 0))
            await admin.delete_topic(TOPIC)
            await create_topic(cluster.servers, min_isr=1)
            await send(producer, [b"new"])
            consumer.seek((TOPIC, 0), 0)
            consumer.resume((TOPIC, 0))
            assert (await consumer.getone()).value == b"new"
