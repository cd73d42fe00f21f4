"""What clients notice of quotas, in all dialects: real brokers and real sockets.

A lower bound of a time is a fact on a machine of any speed; no test has an upper one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from millrace import Admin, Consumer, Producer
from millrace.errors import BrokerError
from millrace.quotas import EACH, QuotaEntity
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.client_quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    EntityData,
    OpData,
)
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from millrace_server.testing import Broker, Cluster
from tests.broker.wire import batch, connect, until
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.kafka.kafka_wire import CLIENT_ID, connect_kafka, produce, topic_id
from tests.quotas.conftest import set_quota

ANONYMOUS = QuotaEntity(user="ANONYMOUS")
FOREVER = 0.001
"""A rate that holds a client back for the rest of a test."""


async def test_a_producer_gets_its_rate_whatever_it_sends(broker: Broker) -> None:
    rate, made = 1_000_000, batch(bytes(100_000))
    await set_quota(broker, QuotaEntity(client_id="noisy"), {"producer_byte_rate": rate})
    async with connect(broker.port, client_id=b"noisy") as wire:
        # Hundreds of requests are sent at once.
        async with asyncio.timeout(HANG_TIMEOUT_S):
            await wire.produce("t", made)
            began, acked = time.monotonic(), 0
            while time.monotonic() - began < 3:
                results = await wire.produce_all([("t", 0, made)])
                assert results[0].error_code == 0
                acked += len(made)
        took = time.monotonic() - began
    assert acked <= rate * (took + 0.2) + 2 * len(made)


async def test_others_go_on_while_one_is_held_back(broker: Broker) -> None:
    await set_quota(broker, QuotaEntity(client_id="noisy"), {"producer_byte_rate": 1})
    async with connect(broker.port, client_id=b"noisy") as noisy:
        await noisy.produce("t", batch(b"v" * 1_000))
        noisy.send_body(3, b"\0\0\0\0")
        async with Producer(broker.servers, client_id="quiet") as quiet:
            for number in range(20):
                assert (await quiet.send("t", b"v")).offset == number + 1
        # The request that waits has no answer.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await noisy.reader.readexactly(1)


async def test_clients_of_one_user_share_its_quota_and_each_has_one_for_itself(
    broker: Broker,
) -> None:
    throttle = broker.node.broker.throttle
    await set_quota(broker, QuotaEntity("ANONYMOUS", EACH), {"producer_byte_rate": 1})
    for client_id in (b"a", b"b"):
        async with connect(broker.port, client_id=client_id) as wire:
            assert (await wire.produce("t", batch(b"v"))).error_code == 0
    assert len(throttle._buckets) == 2
    await set_quota(broker, QuotaEntity("ANONYMOUS", EACH), {"producer_byte_rate": None})
    await set_quota(broker, ANONYMOUS, {"producer_byte_rate": 1})
    for client_id in (b"c", b"d"):
        async with connect(broker.port, client_id=client_id) as wire:
            assert (await wire.produce("t", batch(b"v"))).error_code == 0
    assert len(throttle._buckets) == 3


async def test_kafka_clients_are_told_how_long_they_wait(broker: Broker) -> None:
    await set_quota(broker, QuotaEntity(client_id=CLIENT_ID), {"producer_byte_rate": 1_000})
    made = batch(bytes(1_500))
    async with connect_kafka(broker.port) as wire:
        began = time.monotonic()
        answer = await wire.call(produce(made), 9)
        told_ms = answer.throttle_time_ms
        # What it has sent, without the burst of 200 ms.
        assert 0 < told_ms <= len(made) - 200 + 1
        second = await wire.call(produce(made), 9)
        assert time.monotonic() - began >= (told_ms - 1) / 1000
        assert second.responses[0].partition_responses[0].base_offset == 1
        assert second.throttle_time_ms > 0


async def test_a_time_that_no_response_can_say_is_cut(broker: Broker) -> None:
    async with Admin(broker.servers) as admin:
        await admin.create_topic("large", configs={"max.message.bytes": 4_000_000})
    async with connect_kafka(broker.port) as wire:
        await topic_id(wire, "large")
        await set_quota(broker, QuotaEntity(client_id=CLIENT_ID), {"producer_byte_rate": 1})
        answer = await wire.call(produce(batch(bytes(3_000_000)), topic="large"), 9)
        assert answer.throttle_time_ms == 2**31 - 1


async def test_a_fetch_gets_what_a_second_allows_and_says_what_it_cost(broker: Broker) -> None:
    async with Producer(broker.servers) as producer:
        for _ in range(20):
            await producer.send("t", bytes(1_000))
    await set_quota(broker, QuotaEntity(client_id=CLIENT_ID), {"consumer_byte_rate": 5_000})
    wanted = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic("t", partitions=(wanted,))
    async with connect_kafka(broker.port) as wire:
        answer = await wire.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=(topic,)), 12)
        records = answer.responses[0].partitions[0].records
        assert 0 < len(records) <= 5_000
        assert 0 < answer.throttle_time_ms <= 1_001


async def test_a_consumer_gets_every_record(broker: Broker) -> None:
    values = [bytes([number]) * 2_000 for number in range(40)]
    async with Producer(broker.servers) as producer:
        for value in values:
            await producer.send("t", value)
    await set_quota(broker, QuotaEntity(client_id=EACH), {"consumer_byte_rate": 40_000})
    began = time.monotonic()
    async with Consumer(broker.servers, "t", auto_offset_reset="earliest") as consumer:
        found = []
        async with asyncio.timeout(HANG_TIMEOUT_S):
            async for record in consumer:
                found.append(record.value)
                if len(found) == len(values):
                    break
    assert found == values
    assert time.monotonic() - began >= 1 - 0.2 - 0.1


@pytest.mark.parametrize("line", ["PRODUCE t 0 value\n", "FETCH t 0 0\n"])
async def test_lines_count_as_well(broker: Broker, line: str) -> None:
    async with Producer(broker.servers) as producer:
        await producer.send("t", b"v")
    rates = {"producer_byte_rate": 1, "consumer_byte_rate": 1}
    await set_quota(broker, ANONYMOUS, rates)  # type: ignore[arg-type]
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(2 * line.encode())
    async with asyncio.timeout(HANG_TIMEOUT_S):
        answer = await reader.readline()
        while not answer.startswith(b"OK"):
            answer = await reader.readline()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.readexactly(1)
    writer.close()


async def test_a_tail_is_slowed_and_misses_nothing(broker: Broker) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    await set_quota(broker, QuotaEntity(user=EACH), {"consumer_byte_rate": 2_000})
    writer.write(b"TAIL t 0\n")
    async with asyncio.timeout(HANG_TIMEOUT_S), Producer(broker.servers) as producer:
        await until(lambda: any(each.watchers for each in broker.node.broker.partitions))
        began = time.monotonic()
        for number in range(8):
            await producer.send("t", f"{number:0500}".encode())
        for number in range(8):
            assert (await reader.readline()).endswith(f"{number:0500}\n".encode())
        await producer.send("t", b"last")
        assert (await reader.readline()).endswith(b"last\n")
    assert time.monotonic() - began >= 8 * 500 / 2_000 - 0.2
    writer.close()


async def test_partitions_beyond_the_rate_are_refused(broker: Broker) -> None:
    await set_quota(broker, QuotaEntity(client_id="maker"), {"controller_mutation_rate": 0.1})
    async with connect(broker.port, client_id=b"maker") as wire:
        assert (await wire.create("a", partitions=5)).error_code == 0
        for refused in (await wire.create("b"), await wire.widen("a", 9), await wire.delete("a")):
            assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert "ask again in" in str(refused.error_message)
        assert (await wire.create("b", validate_only=True)).error_code == 0
        assert sorted(await wire.topics()) == ["a", "t"]
    async with Admin(broker.servers) as other:
        assert await other.create_topic("b") == 1


async def test_a_client_that_does_not_know_the_refusal_is_held_back(broker: Broker) -> None:
    await set_quota(broker, QuotaEntity(client_id=CLIENT_ID), {"controller_mutation_rate": 0.1})
    async with connect_kafka(broker.port) as wire:
        new = CreatableTopic("a", 3, 1)
        answer = await wire.call(CreateTopicsRequest((new,)), 5)
        assert answer.topics[0].error_code == 0
        assert answer.throttle_time_ms > 0
    async with connect_kafka(broker.port) as wire:
        answer = await wire.call(CreateTopicsRequest((CreatableTopic("b", 1, 1),)), 6)
        assert answer.topics[0].error_code == 89
    async with connect_kafka(broker.port) as wire:
        answer = await wire.call(DeleteTopicsRequest(topic_names=("a",)), 5)
        assert answer.responses[0].error_code == 89


async def test_a_kafka_client_is_told_how_long_a_refused_change_waits(broker: Broker) -> None:
    """KIP-599: it asks again when that time is over, and at once where there is none."""
    await set_quota(broker, QuotaEntity(client_id=CLIENT_ID), {"controller_mutation_rate": 10})
    create = CreateTopicsRequest((CreatableTopic("b", 1, 1),))
    async with connect_kafka(broker.port) as wire:
        new = CreatableTopic("a", 105, 1)
        assert (await wire.call(CreateTopicsRequest((new,)), 6)).topics[0].error_code == 0
        refused = await wire.call(create, 6)
        assert refused.topics[0].error_code == 89
        assert 0 < refused.throttle_time_ms <= 1_000
        # The next request is taken behind that time.
        created = await wire.call(create, 6)
        assert (created.topics[0].error_code, created.throttle_time_ms) == (0, 0)


async def test_a_topic_that_is_there_already_uses_up_no_quota(broker: Broker) -> None:
    await set_quota(broker, QuotaEntity(client_id="maker"), {"controller_mutation_rate": 0.1})
    async with connect(broker.port, client_id=b"maker") as wire:
        for _ in range(3):
            refused = await wire.create("t", partitions=5)
            assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await wire.create("a", partitions=5)).error_code == 0


async def test_processor_time_is_counted(broker: Broker) -> None:
    await set_quota(broker, QuotaEntity(client_id="busy"), {"request_percentage": FOREVER})
    async with connect(broker.port, client_id=b"busy") as wire:
        # The first request with the client's id has used up its time.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await wire.topics()
    async with connect(broker.port, client_id=b"idle") as wire:
        assert await wire.topics() == ["t"]


async def test_connections_of_an_address_are_taken_at_its_rate(broker: Broker) -> None:
    await set_quota(broker, QuotaEntity(ip="127.0.0.1"), {"connection_creation_rate": 5})
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connect(broker.port)) for _ in range(11)]
        for wire in wires:
            assert await wire.topics() == ["t"]
    # Five at once, and then five a second.
    assert time.monotonic() - began >= 1.0
    await set_quota(broker, QuotaEntity(ip="127.0.0.1"), {"connection_creation_rate": None})


async def test_a_broker_stops_while_clients_are_held_back(broker: Broker) -> None:
    await set_quota(broker, QuotaEntity(ip=EACH), {"connection_creation_rate": 1})
    await set_quota(broker, ANONYMOUS, {"producer_byte_rate": 1})
    async with connect(broker.port) as wire:
        await wire.produce("t", batch(b"v"))
        wire.send_body(3, b"\0\0\0\0")
        waiting = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(3)]
        await broker.stop()
        assert await wire.closed() == b""
        for _, writer in waiting:
            writer.close()


async def test_quotas_outlive_a_restart_and_count_for_every_broker() -> None:
    async with Cluster(3) as cluster:
        entity = QuotaEntity("ada", EACH)
        async with Admin(cluster.servers) as admin:
            await admin.alter_quotas({entity: {"request_percentage": 12.5}})
            with pytest.raises(BrokerError, match="no quota of such an entity"):
                wrong = await admin.alter_quotas({QuotaEntity(ip=EACH): {"request_percentage": 1}})
                wrong[QuotaEntity(ip=EACH)].unwrap()
            assert await admin.list_quotas() == {entity: {"request_percentage": 12.5}}
        # Every broker takes changes to the controller.
        part = EntityData("user", "ada"), EntityData("client-id", None)
        for broker in cluster.brokers.values():
            async with connect_kafka(broker.port) as wire:
                change = AlterClientQuotasEntry(part, (OpData("request_percentage", 12.5, False),))
                answer = await wire.call(AlterClientQuotasRequest((change,), False), 1)
                assert answer.entries[0].error_code == 0
        for broker_id in cluster.brokers:
            await cluster.restart(broker_id)
        async with Admin(cluster.servers) as admin:
            assert await admin.list_quotas(entity) == {entity: {"request_percentage": 12.5}}
            assert await admin.list_quotas(QuotaEntity(user="bob")) == {}
