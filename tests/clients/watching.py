"""Watches over the consumers of a test: their events, and the moment when a group has settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from millrace import Consumer
from millrace.events import Event, EventKind
from tests.hang_timeout import HANG_TIMEOUT_S


class Watch:
    """Keeps every event of the consumers that are added, and wakes the tests that wait for one."""

    def __init__(self) -> None:
        self.events: dict[Consumer[Any, Any], list[Event]] = {}
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, consumer: Consumer[Any, Any]) -> Consumer[Any, Any]:
        """Watches a consumer from now on; returns it."""
        self.events[consumer] = []
        self._tasks.append(asyncio.create_task(self._collect(consumer, consumer.events())))
        return consumer

    async def _collect(self, consumer: Consumer[Any, Any], events: Any) -> None:
        async for event in events:
            self.events[consumer].append(event)
            self._changed.set()

    def kinds(self, consumer: Consumer[Any, Any]) -> list[EventKind]:
        """What has happened to a consumer."""
        return [event.kind for event in self.events[consumer]]

    def sentences(self, consumer: Consumer[Any, Any], kind: EventKind) -> list[str]:
        """The sentences of one kind of event."""
        return [event.sentence for event in self.events[consumer] if event.kind is kind]

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits until something is true after an event."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def heard(self, consumer: Consumer[Any, Any], kind: EventKind, count: int = 1) -> None:
        """Waits until a consumer has had that many events of a kind."""
        await self.until(lambda: self.kinds(consumer).count(kind) >= count)

    async def settled(self, *consumers: Consumer[Any, Any], partitions: int) -> None:
        """Waits until the consumers are stable in one generation and read all the partitions."""

        def is_settled() -> bool:
            groups = [consumer.health().group for consumer in consumers]
            held = [where for group in groups if group is not None for where in group.assignment]
            return (
                all(group is not None and group.state == "stable" for group in groups)
                and len({group.generation for group in groups if group is not None}) == 1
                and len(held) == len(set(held)) == partitions
            )

        await self.until(is_settled)

    async def end(self) -> None:
        """Stops watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def kill(consumer: Consumer[Any, Any]) -> None:
    """Ends a consumer as a killed process ends: it sends nothing, and its sockets are cut."""
    tasks, consumer._tasks = consumer._tasks, None
    assert tasks is not None
    await consumer._cluster.close()
    await tasks.end()
    await consumer.close()
