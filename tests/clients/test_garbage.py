"""An ended client leaves no reference cycle, so the garbage collector has no work.

A client or request that ends in a reference cycle stays in memory until a full collection, which a
program with many live objects runs rarely.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer, sync
from millrace.errors import (
    ClientFailed,
    ConnectionFailed,
    DeliveryFailed,
    DeserializationFailed,
    MillraceError,
    NoCommittedOffset,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from millrace_server.testing import Broker, BrokerThread

PASSES = 20
"""Passes of the event loop after a client's end: closed transports are let go in them."""
CLIENT_PACKAGES = ("millrace.", "millrace_wire.")
Scenario = Callable[[Broker], Awaitable[None]]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker, Admin(broker.servers) as admin:
        await admin.create_topic("t", partitions=2)
        yield broker


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


BROKERS_OWN = "millrace_wire.frame_reader.Scratch"
"""A scenario that stops its broker leaves that broker's read buffer, one for a whole broker."""


def garbage() -> list[str]:
    """What of the clients is in reference cycles, one line for each object."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    shown = map(client_object, gc.garbage)
    return [each for each in shown if each is not None and each != BROKERS_OWN]


def client_object(found: object) -> str | None:
    kind = type(found)
    if f"{kind.__module__}.".startswith(CLIENT_PACKAGES):
        return f"{kind.__module__}.{kind.__qualname__}"
    code = None
    if isinstance(found, types.FrameType):
        code = found.f_code
    elif isinstance(found, types.CoroutineType):
        code = found.cr_code
    if code is not None and "clients/millrace/" in code.co_filename:
        return f"{kind.__name__} of {code.co_qualname}"
    return None


# A client's life without a fault.


async def produce(broker: Broker) -> None:
    async with Producer(broker.servers) as producer:
        await producer.send("t", b"one", key=b"key")
        await producer.send_many("t", [b"two", b"three"])
        producer.send("t", b"four")
        await producer.room()
        await producer.flush()


async def consume(broker: Broker) -> None:
    await produce(broker)
    async with Consumer(broker.servers, "t") as consumer:
        await consumer.getone()
        await consumer.getmany(2, timeout_ms=1_000)
        consumer.seek_to_beginning()
        await consumer.end_offsets()
        async for _ in consumer.batches():
            break


async def consume_in_a_loop(broker: Broker) -> None:
    await produce(broker)
    async with Consumer(broker.servers, "t") as consumer:
        async for _ in consumer:
            break


async def share(broker: Broker) -> None:
    await produce(broker)
    assigned: list[Any] = []
    async with Consumer(broker.servers, "t", group="g", on_assigned=assigned.append) as consumer:
        await consumer.getone()
        await consumer.commit()
        await consumer.committed()
        consumer.health()


async def share_by_hand(broker: Broker) -> None:
    await produce(broker)
    async with Consumer(broker.servers, group="by hand") as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        await consumer.getone()
        await consumer.commit()


async def administer(broker: Broker) -> None:
    async with Admin(broker.servers) as admin:
        await admin.describe_cluster()
        await admin.list_topics()
        with suppress(TopicAlreadyExists):
            await admin.create_topic("t")


async def construct_only(broker: Broker) -> None:
    Producer(broker.servers)
    Consumer(broker.servers, "t")
    Consumer(broker.servers, "t", group="g")
    Admin(broker.servers)


async def listen(broker: Broker) -> None:
    producer = Producer(broker.servers)
    events = producer.events()
    async with producer:
        await producer.send("t", b"")
    async for _ in events:
        pass


# Faults.


async def find_no_broker(broker: Broker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        for client in (Producer(servers), Consumer(servers, "t"), Admin(servers)):
            with suppress(ConnectionFailed):
                await client.start()


async def send_to_no_topic(broker: Broker) -> None:
    producer = Producer(broker.servers, retry_backoff_ms=1, retry_backoff_max_ms=1)
    await producer.start()
    with suppress(UnknownTopicOrPartition):
        await producer.send("missing", b"")
    producer.send("missing", b"")
    with suppress(DeliveryFailed):
        await producer.close()


async def consume_no_topic(broker: Broker) -> None:
    options = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 1}
    with suppress(UnknownTopicOrPartition):
        await Consumer(broker.servers, "missing", **options).start()  # type: ignore[arg-type]


async def refuse_a_record(broker: Broker) -> None:
    def refuse(_: bytes) -> str:
        raise ValueError("not a value")

    await produce(broker)
    async with Consumer(broker.servers, "t", value_deserializer=refuse) as consumer:
        with suppress(DeserializationFailed):
            await consumer.getone()


async def find_no_committed_offset(broker: Broker) -> None:
    async with Consumer(
        broker.servers, "t", group="new", auto_offset_reset="error", auto_commit=False
    ) as consumer:
        with suppress(NoCommittedOffset):
            await consumer.getone()


async def cancel(broker: Broker) -> None:
    async with Consumer(broker.servers, "t", group="g") as consumer:
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        del waiting


async def lose_the_broker(broker: Broker) -> None:
    await produce(broker)
    options: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 1}
    producer = Producer(broker.servers, delivery_timeout_ms=100, **options)
    consumer = Consumer(broker.servers, "t", **options)
    async with producer, consumer:
        await consumer.getone()
        await broker.stop()
        with suppress(MillraceError):
            await producer.send("t", b"lost")
        await consumer.getmany(1_000, timeout_ms=50)
    await broker.start()


async def die(broker: Broker) -> None:
    producer, consumer = Producer(broker.servers), Consumer(broker.servers, "t", group="g")
    await producer.start()
    await consumer.start()
    for task in asyncio.all_tasks():
        if task.get_name() in ("millrace-producer", "millrace-fetcher"):
            task.cancel()
    with suppress(ClientFailed):
        await producer.send("t", b"")
    with suppress(ClientFailed):
        await consumer.getone()
    with suppress(ClientFailed):
        await producer.close()
    await consumer.close()


@pytest.mark.parametrize(
    "scenario",
    [
        produce,
        consume,
        consume_in_a_loop,
        share,
        share_by_hand,
        administer,
        construct_only,
        listen,
        find_no_broker,
        send_to_no_topic,
        consume_no_topic,
        refuse_a_record,
        find_no_committed_offset,
        cancel,
        lose_the_broker,
        die,
    ],
)
async def test_a_client_leaves_no_reference_cycle(
    broker: Broker, no_collector: None, scenario: Scenario
) -> None:
    await scenario(broker)
    for _ in range(PASSES):
        await asyncio.sleep(0)
    assert garbage() == []


@pytest.mark.parametrize("background", [True, False])
def test_a_blocking_client_leaves_no_reference_cycle(no_collector: None, background: bool) -> None:
    with BrokerThread() as broker:
        with sync.Admin(broker.servers) as admin:
            admin.create_topic("t")
            with suppress(TopicAlreadyExists):
                admin.create_topic("t")
        with sync.Producer(broker.servers) as producer:
            producer.send("t", b"one")
        with sync.Consumer(broker.servers, "t", background=background) as consumer:
            assert consumer.getmany(1, timeout_ms=10_000)
        del admin, producer, consumer
        assert garbage() == []
