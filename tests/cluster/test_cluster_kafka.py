"""What a Kafka client is told of the leaders of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace import Producer
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.produce import LeaderIdAndEpoch, NodeEndpoint
from millrace_server.testing import Cluster
from tests.broker.wire import batch, until
from tests.cluster.records import TOPIC, create_topic
from tests.kafka.kafka_wire import KafkaWire, connect_kafka, produce


async def two_epochs(cluster: Cluster) -> tuple[int, int]:
    """A record of each of two leaders; returns the second one and its epoch."""
    await create_topic(cluster.servers)
    async with Producer(cluster.servers) as producer:
        await producer.send(TOPIC, b"first", partition=0, timestamp_ms=1_000)
        await cluster.wait_until_in_sync(TOPIC)
        await cluster.kill(await cluster.leader_of(TOPIC, 0))
        await producer.send(TOPIC, b"second", partition=0, timestamp_ms=2_000)
    leader = await cluster.leader_of(TOPIC, 0)
    known = cluster.brokers[leader].node.broker.image.topics[TOPIC].partitions[0]
    return leader, known.leader_epoch


async def listed(wire: KafkaWire, timestamp_ms: int) -> tuple[int, int]:
    wanted = ListOffsetsTopic(TOPIC, (ListOffsetsPartition(0, timestamp=timestamp_ms),))
    answer = await wire.call(ListOffsetsRequest(-1, topics=(wanted,)), 7)
    (found,) = answer.topics[0].partitions
    assert found.error_code == ErrorCode.NONE
    return found.offset, found.leader_epoch


async def test_an_offset_has_the_epoch_of_its_record(cluster: Cluster) -> None:
    leader, epoch = await two_epochs(cluster)
    async with connect_kafka(cluster.brokers[leader].port) as wire:
        (first_offset, first_epoch) = await listed(wire, -2)
        assert first_offset == 0
        assert 0 <= first_epoch < epoch
        assert await listed(wire, 1_000) == (0, first_epoch)
        assert await listed(wire, 2_000) == (1, epoch)
        assert await listed(wire, -3) == (1, epoch)
        assert await listed(wire, -1) == (2, epoch)
        assert await listed(wire, 3_000) == (-1, -1)


async def test_a_client_that_asks_another_broker_is_told_the_leader(cluster: Cluster) -> None:
    """KIP-951."""
    leader, epoch = await two_epochs(cluster)
    (follower,) = [each for each in cluster.running if each != leader]
    of_follower = cluster.brokers[follower].node.broker
    await until(lambda: of_follower.image.topics[TOPIC].partitions[0].leader == leader)

    def check_names_leader(refused: Any, endpoints: Sequence[NodeEndpoint]) -> None:
        assert refused.current_leader == LeaderIdAndEpoch(leader, epoch)
        (endpoint,) = endpoints
        assert (endpoint.node_id, endpoint.host) == (leader, "127.0.0.1")
        assert endpoint.port == cluster.brokers[leader].port

    async with connect_kafka(cluster.brokers[follower].port) as wire:
        answer = await wire.call(produce(batch(b"v"), topic=TOPIC), 10)
        (refused,) = answer.responses[0].partition_responses
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        check_names_leader(refused, answer.node_endpoints)
        assert (await wire.call(produce(batch(b"v"), topic="none"), 10)).node_endpoints == ()
    async with connect_kafka(cluster.brokers[leader].port) as wire:
        topic_id = cluster.brokers[leader].node.broker.image.topics[TOPIC].topic_id
        old = FetchPartition(0, epoch - 1, partition_max_bytes=1_000)
        fetch = FetchRequest(topics=(FetchTopic("", topic_id, (old,)),))
        answer = await wire.call(fetch, 16)
        (refused,) = answer.responses[0].partitions
        assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
        check_names_leader(refused, answer.node_endpoints)
        before = await wire.call(FetchRequest(topics=(FetchTopic(TOPIC, NO_ID, (old,)),)), 11)
        assert before.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
