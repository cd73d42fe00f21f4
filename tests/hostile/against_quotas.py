"""Attacks by appetite: a client with a quota that takes a hundred times of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from millrace import Admin
from millrace.quotas import QuotaEntity
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from tests.broker.wire import Wire, batch, connect
from tests.hostile.attack import hostile
from tests.hostile.target import GOOD, Target

CLIENT_ID = "glutton"
RATE = 1_000_000
"""Bytes a second that the attacker may send."""
SENT_AT_ONCE = 60
"""Requests of each connection, of 100,000 bytes each: 24 MB at once."""


async def _acked_bytes(wire: Wire, made: bytes, until_s: float) -> int:
    """Sends without a pause; the bytes that were acked by then."""
    request = ProduceRequest(-1, 30_000, (ProducePartition(GOOD, 0, made),))
    for _ in range(SENT_AT_ONCE):
        wire.send(request)
    acked = 0
    while time.monotonic() < until_s:
        assert (await wire.answer(ProduceResponse)).partitions[0].error_code == 0
        acked += len(made)
        wire.send(request)
    return acked


@hostile
async def a_client_that_sends_a_hundred_times_its_quota(target: Target) -> str:
    made, entity = batch(bytes(100_000)), QuotaEntity(client_id=CLIENT_ID)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(f"127.0.0.1:{target.port}"))
        (await admin.alter_quotas({entity: {"producer_byte_rate": RATE}}))[entity].unwrap()
        wires = [
            await stack.enter_async_context(connect(target.port, client_id=CLIENT_ID.encode()))
            for _ in range(4)
        ]
        began_s = time.monotonic()
        end_s = began_s + target.sized(2, 20)
        acked = sum(await asyncio.gather(*(_acked_bytes(wire, made, end_s) for wire in wires)))
        took_s = time.monotonic() - began_s
    # A burst of 200 ms, and a request of each connection.
    assert acked <= RATE * (took_s + 0.2) + len(wires) * 2 * len(made), (acked, took_s)
    return f"held back to {acked / took_s / RATE:.3f} MB/s"
