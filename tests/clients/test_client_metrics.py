"""The metrics of clients of a real broker, and what a scrape makes of them."""

from __future__ import annotations

import asyncio
import doctest
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import millrace.prometheus
from millrace import Admin, Consumer, Producer, TopicPartition, sync
from millrace.errors import DeliveryFailed
from millrace.prometheus import ClientCollector
from millrace_server.testing import Broker, BrokerThread
from tests.hang_timeout import HANG_TIMEOUT_S

VALUES = [b"value %d" % i for i in range(3_000)]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread(topic={"durability": "os"}) as broker:
        yield broker.servers


@pytest.fixture
async def topic(servers: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name = request.node.name
    async with Admin(servers) as admin:
        await admin.create_topic(name, partitions=3)
    yield name


def scraped(registry: CollectorRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of a scrape by name and by the values of their labels, in the order of these."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            labels = tuple(text for _, text in sorted(sample.labels.items()))
            assert labels not in values
            values[labels] = sample.value
    return found


async def test_both_sides_count_the_same_records_and_bytes(servers: str, topic: str) -> None:
    async with Producer(servers) as producer:
        await producer.send_many(topic, VALUES, keys=VALUES)
        sent = producer.metrics()
    assert (sent.acked_records, sent.failed_records, sent.retried_batches) == (3_000, 0, 0)
    assert 1 <= sent.produce_requests == sent.produce_responses <= sent.acked_batches
    assert (sent.buffered_records, sent.buffered_bytes, sent.in_flight_requests) == (0, 0, 0)
    async with Consumer(
        servers, topic, group=topic, start="earliest", auto_commit=False
    ) as consumer:
        for _ in range(3_000):
            await consumer.getone()
        await consumer.commit()
        read = consumer.metrics()
    assert (read.fetched_records, read.fetched_bytes) == (3_000, sent.acked_bytes)
    assert read.fetch_requests >= read.fetch_responses >= 1
    assert (read.failed_fetch_requests, read.partition_errors) == (0, 0)
    assert (read.rebalances, read.commits, read.failed_commits) == (1, 1, 0)
    assert read.assigned_partitions == 3


async def test_lag_is_exact_to_the_record(servers: str, topic: str) -> None:
    where = TopicPartition(topic, 0)
    async with Producer(servers) as producer, Consumer(servers) as consumer:
        await producer.send_many(topic, VALUES[:1_000], partition=0)
        consumer.assign([where], start="earliest")
        assert consumer.metrics().lag == {}
        for count in (1, 2, 600, 397):
            for _ in range(count):
                record = await consumer.getone()
            assert consumer.metrics().lag == {where: 999 - record.offset}
        consumer.seek(where, 100)
        assert consumer.metrics().lag == {where: 900}
        consumer.assign([])
        assert consumer.metrics().lag == {}


async def test_failures_and_retries_are_counted() -> None:
    async with Broker() as broker:
        async with Admin(broker.servers) as admin:
            await admin.create_topic("t")
        async with (
            Producer(broker.servers, retry_backoff_ms=5) as producer,
            Consumer(broker.servers, "t", retry_backoff_ms=5) as consumer,
            asyncio.timeout(HANG_TIMEOUT_S),
        ):
            await producer.send("t", b"1")
            await consumer.getone()
            await broker.stop()
            delivery = producer.send("t", b"2")
            while not producer.metrics().retried_batches:  # noqa: ASYNC110 - a counter announces nothing
                await asyncio.sleep(0)
            while not consumer.metrics().failed_fetch_requests:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await broker.start()
            await delivery
            await consumer.getone()
            sent = producer.metrics()
            assert (sent.acked_records, sent.failed_records) == (2, 0)
            assert sent.retried_batches >= 1
            assert sent.failed_produce_requests == sent.produce_requests - 2 >= 1
            producer.send("missing", b"3")
            with pytest.raises(DeliveryFailed):
                await producer.flush()
            assert producer.metrics().failed_records == 1


async def test_a_scrape_in_another_thread_sees_counters_grow_while_clients_work(
    servers: str, topic: str
) -> None:
    registry = CollectorRegistry(auto_describe=True)
    scrapes: list[dict[str, dict[tuple[str, ...], float]]] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def scrape() -> None:
        try:
            while not done.is_set():
                scrapes.append(scraped(registry))
        except BaseException as error:
            failures.append(error)

    async with (
        Producer(servers, client_id="writer", batch_bytes=2_000) as producer,
        Consumer(servers, topic, client_id="reader", start="earliest") as consumer,
    ):
        registry.register(ClientCollector(producer, consumer))
        thread = threading.Thread(target=scrape)
        thread.start()
        try:
            for round_ in range(20):
                await producer.send_many(topic, VALUES, keys=VALUES)
                for _ in range(2_000):
                    await consumer.getone()
                consumer.assign([(topic, p) for p in range(3) if p != round_ % 4], start="earliest")
        finally:
            done.set()
            thread.join()
        scrapes.append(scraped(registry))
    assert failures == []
    for name in scrapes[-1]:
        if name.endswith("_total"):
            values = [each[name] for each in scrapes]
            assert values == sorted(values, key=lambda value: next(iter(value.values()))), name
    assert scrapes[-1]["millrace_producer_acked_records_total"] == {("writer",): 60_000}
    assert {labels[0] for labels in scrapes[-1]["millrace_consumer_lag"]} == {"reader"}


async def test_clients_come_and_go(servers: str, topic: str) -> None:
    registry = CollectorRegistry(auto_describe=True)
    collector = ClientCollector()
    registry.register(collector)
    assert scraped(registry) == {}
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(ClientCollector())
    consumer = Consumer(servers, topic)
    collector.add(consumer)
    async with Producer(servers) as producer:
        collector.add(producer)
        with pytest.raises(ValueError, match="another producer has 'millrace' too"):
            collector.add(Producer(servers))
        await producer.send(topic, b"1", partition=1)
        async with consumer:
            await consumer.getone()
            lag = scraped(registry)["millrace_consumer_lag"]
            assert lag["millrace", "1", topic] == 0
    closed = scraped(registry)
    assert "millrace_consumer_lag" not in closed
    assert closed["millrace_consumer_assigned_partitions"] == {("millrace",): 0}
    assert closed["millrace_producer_acked_records_total"] == {("millrace",): 1}
    dropped = weakref.ref(producer)
    del producer
    gc.collect()
    assert dropped() is None
    assert "millrace_producer_acked_records_total" not in scraped(registry)
    collector.add(Producer(servers))


async def test_a_scrape_has_the_partitions_with_the_largest_lag(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(millrace.prometheus, "PARTITIONS_MAX", 1)
    registry = CollectorRegistry(auto_describe=True)
    async with Producer(servers) as producer, Consumer(servers, topic) as consumer:
        for partition, count in enumerate((1, 3, 1)):
            await producer.send_many(topic, VALUES[:count], partition=partition)
        for _ in range(5):
            await consumer.getone()
        for partition in range(3):
            consumer.seek((topic, partition), 0)
        registry.register(ClientCollector(consumer))
        found = scraped(registry)
        assert found["millrace_consumer_lag"] == {("millrace", "1", topic): 3}
        assert found["millrace_consumer_partitions_left_out"] == {("millrace",): 2}


@pytest.mark.parametrize("background", [True, False])
def test_clients_without_an_event_loop_have_the_same_metrics(
    servers: str, background: bool
) -> None:
    topic = f"sync-{background}"
    with sync.Admin(servers) as admin:
        admin.create_topic(topic)
    with sync.Producer(servers) as producer:
        producer.send_many(topic, VALUES)
        with sync.Consumer(servers, topic, background=background) as consumer:
            registry = CollectorRegistry(auto_describe=True)
            registry.register(ClientCollector(producer, consumer))
            while sum(consumer.metrics().lag.values()) or not consumer.metrics().lag:
                consumer.getmany()
            scrapes: list[dict[str, dict[tuple[str, ...], float]]] = []
            thread = threading.Thread(target=lambda: scrapes.append(scraped(registry)))
            thread.start()
            thread.join()
            assert scrapes[0]["millrace_consumer_fetched_records_total"] == {("millrace",): 3_000}
            assert scrapes[0]["millrace_producer_acked_records_total"] == {("millrace",): 3_000}
    assert producer.metrics().acked_records == 3_000


def test_the_examples_in_docstrings_are_true() -> None:
    failed, attempted = doctest.testmod(millrace.prometheus)
    assert (failed, attempted > 0) == (0, True)
