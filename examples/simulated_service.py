"""A service that copies orders, twice: one loses orders when it crashes, the other does not.

    millrace simulate examples/simulated_service.py:hasty --seeds 1-20
    millrace simulate examples/simulated_service.py:careful --seeds 1-20

The service reads `orders`, and sends each to `paid`. It is killed now and then, as everything else
in the simulation is. Both main functions have a hundred orders sent and look for all of them in
`paid`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from millrace import Admin, Consumer, Producer
from millrace.errors import MillraceError
from millrace_simulation import Simulation

Service = Callable[[str], Coroutine[Any, Any, None]]


async def charge() -> None:
    """Stands for a call of a bank."""
    await asyncio.sleep(0.5)


async def pay_hastily(servers: str) -> None:
    """Commits what it has read, and sends it then. A crash between the two loses orders."""
    async with (
        Consumer(servers, "orders", group="payments", auto_commit=False) as consumer,
        Producer(servers) as producer,
    ):
        while True:
            records = await consumer.getmany()
            await consumer.commit()
            await charge()
            await producer.send_many("paid", [record.value for record in records])


async def pay_carefully(servers: str) -> None:
    """Sends what it has read, and commits when that is acknowledged."""
    async with (
        Consumer(servers, "orders", group="payments", auto_commit=False) as consumer,
        Producer(servers) as producer,
    ):
        while True:
            records = await consumer.getmany()
            await charge()
            await producer.send_many("paid", [record.value for record in records])
            await consumer.commit()


async def sell(servers: str, orders: list[bytes]) -> None:
    """Sends orders. What is acknowledged is taken off the list, which survives a crash."""
    async with Producer(servers) as producer:
        while orders:
            await producer.send("orders", orders[0])
            del orders[0]
            await asyncio.sleep(random.random())


async def hasty(sim: Simulation) -> None:
    """The main function that shall find the bug."""
    await every_order_is_paid(sim, pay_hastily)


async def careful(sim: Simulation) -> None:
    """The same with the service that is right."""
    await every_order_is_paid(sim, pay_carefully)


async def every_order_is_paid(sim: Simulation, pay: Service) -> None:
    """Runs the shop and the payments until the faults are over; then all orders are to be paid."""
    async with Admin(sim.servers) as admin:
        await admin.create_topic("orders", partitions=2)
        await admin.create_topic("paid")
    orders = [b"order %d" % number for number in range(100)]
    missing = set(orders)
    shop = sim.service("shop", sell, sim.servers, orders, restart_on=(MillraceError,))
    sim.service("payments", pay, sim.servers, restart_on=(MillraceError,))
    await sim.faults_over()
    await shop.finished()
    async with Consumer(sim.servers, "paid", start="earliest") as consumer:
        with suppress(TimeoutError):
            async with asyncio.timeout(300):
                while missing:
                    missing -= {record.value for record in await consumer.getmany()}
    assert not missing, f"never paid: {sorted(missing)}"
