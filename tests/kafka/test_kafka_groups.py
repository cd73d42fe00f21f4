"""Groups of Kafka's clients: every assignor, members that come and go, static members, times."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from millrace import sync
from millrace_server.testing import BrokerThread
from tests.hang_timeout import HANG_TIMEOUT_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka
    import kafka.coordinator.assignors.cooperative_sticky as cooperative
    import kafka.coordinator.assignors.range as ranged
    import kafka.coordinator.assignors.roundrobin as round_robin
    import kafka.coordinator.assignors.sticky.sticky_assignor as sticky

PARTITIONS = 4
ALL = {*range(PARTITIONS)}
HEARTBEAT_MS = 100


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """One broker for all tests of this file."""
    with BrokerThread(group_initial_rebalance_delay_ms=0) as running:
        yield running


def made(broker: BrokerThread, topic: str) -> str:
    """A topic with a record in each partition, whose timestamps are its numbers in seconds."""
    with sync.Admin(broker.servers) as admin, sync.Producer(broker.servers) as producer:
        admin.create_topic(topic, partitions=PARTITIONS)
        for number in range(PARTITIONS):
            for second in range(10):
                producer.send(
                    topic, b"%d" % second, partition=number, timestamp_ms=BASE_MS + second * 1_000
                )
    return topic


BASE_MS = int(time.time()) * 1_000 - 60_000


def until(condition: Callable[[], bool], step: Callable[[], object]) -> None:
    """Repeats a step until the condition holds."""
    deadline = time.monotonic() + HANG_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        step()


class ConfluentMember:
    """A member that polls when it is told to."""

    def __init__(self, servers: str, topic: str, **settings: object) -> None:
        given: dict[str, Any] = {
            "bootstrap.servers": servers,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        self._consumer = confluent_kafka.Consumer(given)
        self._consumer.subscribe([topic])

    def poll(self) -> None:
        self._consumer.poll(0.02)

    def numbers(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember:
    """A member that polls in a thread: one whose polls end while it joins may never end joining."""

    def __init__(self, servers: str, topic: str, **settings: object) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=HEARTBEAT_MS,
            **settings,
        )
        self._is_closing = threading.Event()
        self._polling = threading.Thread(target=self._poll)
        self._polling.start()

    def poll(self) -> None:
        self._is_closing.wait(0.01)

    def _poll(self) -> None:
        while not self._is_closing.is_set():
            self._consumer.poll(timeout_ms=500)

    def numbers(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._is_closing.set()
        self._polling.join()
        self._consumer.close()


KAFKA_PYTHON_ASSIGNORS = (
    ranged.RangePartitionAssignor,
    round_robin.RoundRobinPartitionAssignor,
    sticky.StickyPartitionAssignor,
    cooperative.CooperativeStickyAssignor,
)
MEMBERS: list[Any] = [
    *((ConfluentMember, name) for name in ("range", "roundrobin", "cooperative-sticky")),
    *((KafkaPythonMember, assignor) for assignor in KAFKA_PYTHON_ASSIGNORS),
]


@pytest.mark.parametrize(("member", "assignor"), MEMBERS)
def test_members_share_partitions_and_take_over_from_each_other(
    broker: BrokerThread, member: Any, assignor: Any
) -> None:
    is_confluent = member is ConfluentMember
    name = assignor if is_confluent else assignor.__name__
    if is_confluent:
        group = {"group.id": name, "partition.assignment.strategy": assignor}
    else:
        group = {"group_id": name, "partition_assignment_strategy": (assignor,)}
    topic = made(broker, name)
    first = member(broker.servers, topic, **group)
    until(lambda: first.numbers() == ALL, first.poll)
    second = member(broker.servers, topic, **group)

    def both() -> None:
        first.poll()
        second.poll()

    until(
        lambda: (
            len(first.numbers()) == len(second.numbers()) == PARTITIONS // 2
            and first.numbers() | second.numbers() == ALL
        ),
        both,
    )
    first.close()
    until(lambda: second.numbers() == ALL, second.poll)
    second.close()


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
)
async def test_members_of_aiokafka_share_partitions(broker: BrokerThread, assignor: Any) -> None:
    topic = made(broker, f"aio-{assignor.name}")

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.servers,
            group_id=topic,
            partition_assignment_strategy=(assignor,),
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=6_000,
        )

    async with member() as first:
        async with member() as second:
            while not (len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2):
                await first.getmany(timeout_ms=20)
                await second.getmany(timeout_ms=20)
            numbers = {each.partition for each in (*first.assignment(), *second.assignment())}
            assert numbers == ALL
        while len(first.assignment()) < PARTITIONS:
            await first.getmany(timeout_ms=20)


@pytest.mark.parametrize("member", [ConfluentMember, KafkaPythonMember])
def test_a_static_member_comes_back_without_a_rebalance(broker: BrokerThread, member: Any) -> None:
    is_confluent = member is ConfluentMember
    topic = made(broker, f"static-{member.__name__}")
    names = ("group.id", "group.instance.id") if is_confluent else ("group_id", "group_instance_id")

    def joined(instance: str) -> Any:
        return member(broker.servers, topic, **dict(zip(names, (topic, instance), strict=True)))

    first = joined("one")
    until(lambda: first.numbers() == ALL, first.poll)
    with sync.Admin(broker.servers) as admin:
        generation = admin.describe_group(topic).generation
        first.close()
        again = joined("one")
        until(lambda: again.numbers() == ALL, again.poll)
        assert admin.describe_group(topic).generation == generation
    again.close()


def test_offsets_are_found_by_time(broker: BrokerThread) -> None:
    topic = made(broker, "times")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.servers, "group.id": "t"})
    wanted = [confluent_kafka.TopicPartition(topic, number, BASE_MS + 4_500) for number in ALL]
    found = consumer.offsets_for_times(wanted, HANG_TIMEOUT_S)
    assert [each.offset for each in found] == [5] * PARTITIONS
    consumer.assign(found)
    message = consumer.consume(1, HANG_TIMEOUT_S)[0]
    assert (message.offset(), message.value()) == (5, b"5")
    consumer.close()


# Administration


async def test_aiokafka_administers(broker: BrokerThread) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.servers)
    await admin.start()
    try:
        await admin.create_topics([AioNewTopic("aio-made", 2, 1)])
        assert "aio-made" in await admin.list_topics()
        (described,) = await admin.describe_topics(["aio-made"])
        assert len(described["partitions"]) == 2
        await admin.list_consumer_groups()
        await admin.delete_topics(["aio-made"])
        assert "aio-made" not in await admin.list_topics()
    finally:
        await admin.close()


def test_kafka_python_administers(broker: BrokerThread) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.servers)
    try:
        admin.create_topics({"kp-made": {"num_partitions": 2, "replication_factor": 1}})
        assert "kp-made" in admin.list_topics()
        admin.create_partitions({"kp-made": 3})
        (described,) = admin.describe_topics(["kp-made"])
        assert len(described["partitions"]) == 3
        assert admin.describe_cluster()["brokers"]
        assert admin.describe_log_dirs()
        admin.delete_topics(["kp-made"])
        assert "kp-made" not in admin.list_topics()
    finally:
        admin.close()
