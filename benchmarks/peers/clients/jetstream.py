"""nats-py: `publish_async`, `fetch` of a pull consumer, and an ordered push consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from benchmarks.peers.clients.client import TIMEOUT_S, Client, Taken

RECORDS_PER_CALL = 500


class JetStream(Client):
    """A partition is a subject of the stream; senders take them in turns."""

    _connection: Any = None

    async def open_producer(self) -> None:
        self._connection = await nats.connect(self.task.servers, reconnect_time_wait=0.01)
        self._context = self._connection.jetstream(timeout=TIMEOUT_S)
        self._subjects = [f"{self.task.topic}.{partition}" for partition in self.task.partitions]
        self._turn = 0
        self._consumers: list[Any] = []
        self._values: list[bytes] = []
        self._has_values = asyncio.Event()

    async def open_consumer(self) -> None:
        await self.open_producer()
        if self.task.method == "fetch":
            await self._open_pull_consumers()
            return
        for subject in self._subjects:
            await self._context.subscribe(
                subject, stream=self.task.topic, ordered_consumer=True, cb=self._arrived
            )

    async def _open_pull_consumers(self) -> None:
        self._left = [self.task.records // len(self._subjects)] * len(self._subjects)
        for subject in self._subjects:
            # A reader that keeps its own position, as those of the other contestants do.
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, filter_subject=subject
            )
            self._consumers.append(
                await self._context.pull_subscribe(subject, stream=self.task.topic, config=config)
            )

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _publish(self, values: Sequence[bytes], subject: str) -> None:
        for value in values:
            await self._context.publish_async(subject, value, wait_stall=TIMEOUT_S)

    def _next_subject(self) -> str:
        self._turn += 1
        return self._subjects[self._turn % len(self._subjects)]

    async def produce(
        self, values: Sequence[bytes], count: int, partition: int | None = None
    ) -> float:
        while count:
            subject = (
                self._next_subject() if partition is None else f"{self.task.topic}.{partition}"
            )
            await self._publish(values[:count], subject)
            count -= min(count, len(values))
        await self.flush()
        return 0.0

    async def consume(self, least: int) -> Taken:
        taken = Taken()
        while taken.records < least:
            # A call for more than there is would wait for the rest.
            index = max(range(len(self._left)), key=self._left.__getitem__)
            count = min(RECORDS_PER_CALL, self._left[index])
            messages = await self._consumers[index].fetch(count, TIMEOUT_S)
            self._left[index] -= len(messages)
            taken.records += len(messages)
            taken.value_bytes += sum(len(message.data) for message in messages)
        return taken

    async def send(self, values: Sequence[bytes]) -> None:
        await self._publish(values, self._next_subject())

    async def flush(self) -> None:
        await self._context.publish_async_completed()

    async def _arrived(self, message: Any) -> None:
        self._values.append(message.data)
        self._has_values.set()

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            async with asyncio.timeout(TIMEOUT_S):
                await self._has_values.wait()
            self._has_values.clear()
            values, self._values = self._values, []
            yield values
