"""confluent-kafka: librdkafka behind a C extension. Its calls block, in a process of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.peers.clients.client import TIMEOUT_S, Client, Stalled, Taken
from benchmarks.peers.task import BATCH_BYTES

QUEUE_RECORDS = 1_000_000
MESSAGES_PER_CALL = 500


class Confluent(Client):
    """`produce` without delivery callbacks; `consume` of up to 500 messages, and `poll`."""

    _producer: Any = None
    _consumer: Any = None

    async def open_producer(self) -> None:
        task = self.task
        self._producer = Producer(
            {
                "bootstrap.servers": task.servers,
                "acks": task.acks,
                "linger.ms": task.linger_ms,
                "batch.size": BATCH_BYTES,
                "compression.type": task.compression,
                "queue.buffering.max.messages": QUEUE_RECORDS,
                # The first round of a server that starts is timed from its start.
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 20,
            }
        )

    async def open_consumer(self) -> None:
        self._consumer = self._new_consumer("bench")
        partitions = self.task.partitions
        self._consumer.assign(
            [TopicPartition(self.task.topic, number, OFFSET_BEGINNING) for number in partitions]
        )

    def _new_consumer(self, group: str) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self.task.servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # By default a full queue is not refilled for a second.
                "fetch.queue.backoff.ms": 1,
            }
        )

    async def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    async def produce(
        self, values: Sequence[bytes], count: int, partition: int | None = None
    ) -> float:
        where = {} if partition is None else {"partition": partition}
        topic, produce = self.task.topic, self._producer.produce
        while count:
            for value in values[:count]:
                try:
                    produce(topic, value, **where)
                except BufferError:
                    self._produce_when_there_is_room(value, where)
            count -= min(count, len(values))
        await self.flush()
        return 0.0

    def _produce_when_there_is_room(self, value: bytes, where: dict[str, int]) -> None:
        while True:
            self._producer.poll(0.01)
            try:
                self._producer.produce(self.task.topic, value, **where)
            except BufferError:
                continue
            return

    async def consume(self, least: int) -> Taken:
        return self._poll(least) if self.task.method == "poll" else self._consume(least)

    def _poll(self, least: int) -> Taken:
        size, poll = 0, self._consumer.poll
        for _ in range(least):
            message = poll(TIMEOUT_S)
            if message is None:
                raise Stalled("confluent-kafka: records did not arrive")
            size += len(message.value())
        return Taken(least, size)

    def _consume(self, least: int) -> Taken:
        taken = Taken()
        while taken.records < least:
            wanted = min(MESSAGES_PER_CALL, least - taken.records)
            messages = self._consumer.consume(wanted, TIMEOUT_S)
            if not messages:
                raise Stalled("confluent-kafka: records did not arrive")
            taken.value_bytes += sum([len(message.value()) for message in messages])
            taken.records += len(messages)
        return taken

    async def send(self, values: Sequence[bytes]) -> None:
        for value in values:
            try:
                self._producer.produce(self.task.topic, value)
            except BufferError:
                self._produce_when_there_is_room(value, {})
        self._producer.poll(0)

    async def flush(self) -> None:
        if self._producer.flush(TIMEOUT_S):
            raise Stalled("confluent-kafka: records were not acked")

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            message = self._consumer.poll(TIMEOUT_S)
            if message is None:
                raise Stalled("confluent-kafka: records did not arrive")
            if message.error() is None:
                yield [message.value()]

    async def join(self) -> None:
        self._consumer = self._new_consumer(self.task.group)
        self._consumer.subscribe([self.task.topic])
        if self._consumer.poll(TIMEOUT_S) is None:
            raise Stalled("confluent-kafka: the group has no assignment")

    async def attend(self) -> None:
        while True:
            # Rebalances are served by calls alone.
            self._consumer.poll(0.05)
            await asyncio.sleep(0)
