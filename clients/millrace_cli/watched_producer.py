"""A producer of a command: waits are told on stderr, and its end waits for no ack in vain.

Owns the start and the close. What is sent, and what is waited for after a signal, is the caller's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from millrace.events import EventKind, State
from millrace.producer import Producer
from millrace_cli.broker_watch import Silence, watching
from millrace_cli.exits import tell
from millrace_cli.visible_text import counted

ACKS_S = 5.0
"""How long an interrupted command waits for acks."""


@asynccontextmanager
async def watched_producer(
    servers: str, settings: Mapping[str, Any], *, unacked: Callable[[], int]
) -> AsyncIterator[Producer]:
    """A started producer. Its `delivery_timeout_ms`, in `settings`, bounds each wait.

    At the end of the block, records that are `unacked` are given up.
    """
    producer = Producer(servers, **settings)
    silence = partial(_silence, producer, servers, time.monotonic())
    timeout_s = settings["delivery_timeout_ms"] / 1000
    async with watching(silence, timeout_s=timeout_s, ends=False):
        await producer.start()
        reporting = asyncio.create_task(_report_retries(producer))
        try:
            yield producer
        finally:
            reporting.cancel()
            if unacked():
                await _abandon(producer)
            else:
                await producer.close()


def tell_unacked(count: int) -> None:
    """Prints how many records were sent without an ack, if any."""
    if count:
        verb, them = ("was", "it") if count == 1 else ("were", "them")
        tell(
            f"{counted(count, 'record')} more {verb} sent without an ack; the topic may have {them}"
        )


def _silence(producer: Producer, servers: str, started: float) -> Silence:
    """How long the oldest record has waited for its ack, or the command for its first response."""
    health = producer.health()
    if health.state is State.NEW:
        sentence = f"no broker of {servers} answers"
        return Silence(time.monotonic() - started, sentence, is_starting=True)
    waiting = counted(health.buffered_records, "record")
    reason = "" if health.last_error is None else f": {health.last_error}"
    return Silence(health.oldest_ms / 1000, f"no ack for {waiting}{reason}")


async def _abandon(producer: Producer) -> None:
    """Closes without waiting for acks."""
    closing = asyncio.ensure_future(producer.close())
    await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait([closing])


async def _report_retries(producer: Producer) -> None:
    """Prints the reason of a retry, so that the user knows why the command waits."""
    async for event in producer.events():
        if event.kind is EventKind.RETRYING:
            tell(event.sentence)
