"""Topics that are created while brokers of the cluster are away."""

from __future__ import annotations

import asyncio

import pytest

from millrace import Producer
from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import UnregisterBrokerRecord
from millrace_server.api_error import ApiError
from millrace_server.partitions import opening
from millrace_server.partitions.partition_table import OpenedAgainLater
from millrace_server.quorum.metadata_log import NotWritten
from millrace_server.services import topics
from millrace_server.services.request_context import THIS_BROKER
from millrace_server.testing import Broker, Cluster
from tests.broker.wire import until
from tests.cluster.records import TOPIC, create_topic, numbers, replica, send
from tests.hang_timeout import HANG_TIMEOUT_S


async def forget(cluster: Cluster, broker_id: int) -> Broker:
    """Kills a broker, and makes the cluster one in which it has never been."""
    if await cluster.controller() == broker_id:
        await cluster.restart(broker_id)
    await cluster.kill(broker_id)
    controller = cluster.brokers[await cluster.controller()]
    core = controller.node.broker
    await until(lambda: core.image.brokers[broker_id].is_fenced)
    epoch = core.image.brokers[broker_id].epoch
    await core.active.change(lambda image: [UnregisterBrokerRecord(broker_id, epoch)])
    return controller


async def test_changes_on_a_broker_that_does_not_lead_wait_neither_for_it_nor_for_each_other(
    cluster: Cluster,
) -> None:
    controller = await cluster.controller()
    other = cluster.brokers[min(set(cluster.brokers) - {controller})].node.broker
    async with asyncio.timeout(HANG_TIMEOUT_S):
        ended = await asyncio.gather(
            *(other.active.change(lambda image: []) for _ in range(50)), return_exceptions=True
        )
    assert {type(error) for error in ended} == {NotWritten}
    assert {error.code for error in ended if isinstance(error, NotWritten)} == {
        ErrorCode.NOT_CONTROLLER
    }


async def test_a_topic_that_is_created_while_a_broker_is_away_has_a_replica_on_it(
    cluster: Cluster,
) -> None:
    await cluster.kill(3)
    controller = cluster.brokers[await cluster.controller()].node.broker
    await until(lambda: controller.image.brokers[3].is_fenced)
    await create_topic(cluster.servers, partitions=2)
    await until(lambda: TOPIC in controller.image.topics)
    for partition in controller.image.topics[TOPIC].partitions:
        assert sorted(partition.replicas) == [1, 2, 3]
        assert sorted(partition.isr) == [1, 2]
        assert partition.leader != 3
    async with Producer(cluster.servers) as producer:
        await send(producer, numbers(0, 10))
    await cluster.start(3)
    await cluster.wait_until_in_sync(TOPIC)
    assert replica(cluster.brokers[3]).log.durable_offset == 10


async def test_a_topic_waits_for_brokers_that_register_for_the_first_time(
    cluster: Cluster,
) -> None:
    controller = await forget(cluster, 3)
    creating = asyncio.ensure_future(controller.node.broker.topics.create(THIS_BROKER, TOPIC))
    await cluster.start(3)
    assert (await creating).replication_factor == 3


async def test_a_topic_waits_for_brokers_only_for_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "REGISTRATION_WAIT_MS", 50)
    controller = await forget(cluster, 3)
    assert (await controller.node.broker.topics.create(THIS_BROKER, TOPIC)).replication_factor == 2


async def test_a_replica_whose_report_was_refused_is_reported_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "RETRY_MIN_MS", 10)
    controller = await cluster.controller()
    other = next(each for each in cluster.brokers if each != controller)
    core = cluster.brokers[other].node.broker
    report, refusals = core.lifecycle.report_replicas, iter([ErrorCode.STALE_BROKER_EPOCH] * 2)

    async def refuse_at_first(created: object) -> None:
        for code in refusals:
            raise ApiError(code)
        await report(created)  # type: ignore[arg-type]

    monkeypatch.setattr(core.lifecycle, "report_replicas", refuse_at_first)
    await create_topic(cluster.servers)
    await until(lambda: isinstance(core.partitions.offline(TOPIC, 0), OpenedAgainLater))
    await until(lambda: core.partitions.offline(TOPIC, 0) is None)
    async with Producer(cluster.servers) as producer:
        await send(producer, numbers(0, 10))
    await cluster.wait_until_in_sync(TOPIC)
    assert replica(cluster.brokers[other]).log.durable_offset == 10
