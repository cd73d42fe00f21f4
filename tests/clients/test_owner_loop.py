"""Clients that are called from elsewhere than their event loop, or never closed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer
from millrace import sync as millrace_sync
from millrace.errors import WrongLoop
from millrace_server.testing import Broker, BrokerThread


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running, Admin(running.servers) as admin:
        await admin.create_topic("t")
        yield running


def in_another_loop(call: Callable[[], Any]) -> None:
    async def run() -> None:
        result = call()
        if asyncio.iscoroutine(result):
            await result

    asyncio.run(run())


async def test_a_call_from_another_thread_is_refused_with_the_way_to_do_it(broker: Broker) -> None:
    async with Producer(broker.servers) as producer, Consumer(broker.servers, "t") as consumer:
        refused = "event loop in another thread.*run_coroutine_threadsafe"
        with pytest.raises(WrongLoop, match=rf"{refused}, or use millrace\.sync\.Producer"):
            await asyncio.to_thread(producer.send, "t", b"x")
        with pytest.raises(WrongLoop, match=refused):
            await asyncio.to_thread(producer.send_many, "t", [b"x"])
        with pytest.raises(WrongLoop, match=rf"{refused}, or use millrace\.sync\.Consumer"):
            await asyncio.to_thread(consumer.pause, ("t", 0))
        with pytest.raises(WrongLoop, match=refused):
            await asyncio.to_thread(consumer.assign, [("t", 0)])
        assert producer.health().buffered_records == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda producer, consumer, admin: producer.send("t", b"x"),
        lambda producer, consumer, admin: producer.flush(),
        lambda producer, consumer, admin: producer.room(),
        lambda producer, consumer, admin: producer.close(),
        lambda producer, consumer, admin: consumer.getone(),
        lambda producer, consumer, admin: consumer.getmany(timeout_ms=1),
        lambda producer, consumer, admin: consumer.close(),
        lambda producer, consumer, admin: admin.list_topics(),
        lambda producer, consumer, admin: admin.close(),
    ],
)
async def test_a_call_from_another_loop_is_refused(
    broker: Broker, call: Callable[..., Any]
) -> None:
    async with (
        Producer(broker.servers) as producer,
        Consumer(broker.servers, "t") as consumer,
        Admin(broker.servers) as admin,
    ):
        with pytest.raises(WrongLoop, match="belongs to another event loop"):
            await asyncio.to_thread(in_another_loop, lambda: call(producer, consumer, admin))
        # Nothing has changed for the loop of the clients.
        receipt = await producer.send("t", b"y")
        assert (await consumer.getone()).offset == receipt.offset == 0


async def test_a_delivery_is_not_awaited_in_another_loop(broker: Broker) -> None:
    async with Producer(broker.servers, linger_ms=60_000) as producer:
        delivery = producer.send("t", b"x")

        async def wait() -> None:
            await delivery

        with pytest.raises(WrongLoop, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, wait())


def run(program: str, servers: str) -> subprocess.CompletedProcess[str]:
    """A program of its own: what it forgets is reported when it ends.

    Not with `-X dev`, with which a loop also reports callbacks that a busy machine made slow.
    """
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(program), servers],
        check=False,
        capture_output=True,
        text=True,
    )


FORGOTTEN_PRODUCER = """
    import asyncio, sys
    from millrace import Producer

    async def main():
        producer = Producer(sys.argv[1], linger_ms=60_000)
        await producer.start()
        for _ in range(17):
            producer.send("t", b"x")

    asyncio.run(main())
"""
FORGOTTEN_CONSUMER = """
    import asyncio, sys
    from millrace import Consumer

    async def main():
        consumer = Consumer(sys.argv[1], "t", group="g", session_timeout_ms=45_000)
        await consumer.start()

    asyncio.run(main())
"""
FORGOTTEN_BLOCKING_PRODUCER = """
    import sys
    from millrace.sync import Producer

    producer = Producer(sys.argv[1], linger_ms=60_000)
    producer.start()
    for _ in range(17):
        producer.post("t", b"x")
"""
CLOSED = """
    import asyncio, sys
    from millrace import Admin, Consumer, Producer
    from millrace import sync

    async def main():
        async with Producer(sys.argv[1]) as producer, Consumer(sys.argv[1], "t") as consumer:
            await producer.send("t", b"x")
            await consumer.getone()
        interrupted = asyncio.create_task(forever())
        await asyncio.sleep(0.1)

    async def forever():
        async with Producer(sys.argv[1]), Consumer(sys.argv[1], "t", group="g") as consumer:
            await asyncio.Event().wait()

    asyncio.run(main())
    with sync.Producer(sys.argv[1]) as producer, sync.Admin(sys.argv[1]) as admin:
        producer.post("t", b"x")
"""


@pytest.mark.parametrize(
    ("program", "lost"),
    [
        (FORGOTTEN_PRODUCER, "a millrace producer was not closed: 17 records"),
        (FORGOTTEN_BLOCKING_PRODUCER, "a millrace producer was not closed: 17 records"),
        (FORGOTTEN_CONSUMER, "a millrace consumer was not closed: what it processed last"),
    ],
)
def test_a_forgotten_close_is_reported_with_what_it_loses(program: str, lost: str) -> None:
    with BrokerThread() as broker:
        with millrace_sync.Admin(broker.servers) as admin:
            admin.create_topic("t")
        ended = run(program, broker.servers)
    assert ended.returncode == 0, ended.stderr
    (warning,) = [line for line in ended.stderr.splitlines() if "ResourceWarning: a mill" in line]
    assert lost in warning
    # The log has it too, because Python shows no ResourceWarning as a rule.
    assert ended.stderr.count(lost) >= 2


def test_what_was_closed_is_not_reported() -> None:
    with BrokerThread() as broker:
        with millrace_sync.Admin(broker.servers) as admin:
            admin.create_topic("t")
        ended = run(CLOSED, broker.servers)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_client_whose_settings_are_refused_is_not_reported() -> None:
    for client in (Producer, Consumer, Admin, millrace_sync.Producer, millrace_sync.Consumer):
        with pytest.raises(Exception, match="no such setting"):
            client("localhost:9092", nonsense=1)  # type: ignore[call-overload,call-arg]
    gc.collect()
