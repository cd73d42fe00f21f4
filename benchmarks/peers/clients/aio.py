"""aiokafka: asyncio, with a compiled record codec."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.peers.clients.client import TIMEOUT_S, Client, Stalled, Taken
from benchmarks.peers.task import BATCH_BYTES

RECORDS_PER_CALL = 500


class Aio(Client):
    """`await send`, whose future is dropped; `getmany` of up to 500 records, and `getone`."""

    _producer: Any = None
    _consumer: Any = None

    async def open_producer(self) -> None:
        task = self.task
        self._producer = AIOKafkaProducer(
            bootstrap_servers=task.servers,
            acks=task.wire_acks,
            linger_ms=task.linger_ms,
            max_batch_size=BATCH_BYTES,
            compression_type=None if task.compression == "none" else task.compression,
        )
        await self._producer.start()

    async def open_consumer(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.task.servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        self._consumer.assign([TopicPartition(self.task.topic, n) for n in self.task.partitions])
        await self._consumer.start()

    async def close(self) -> None:
        for opened in (self._producer, self._consumer):
            if opened is not None:
                await opened.stop()

    async def produce(
        self, values: Sequence[bytes], count: int, partition: int | None = None
    ) -> float:
        topic, send = self.task.topic, self._producer.send
        while count:
            for value in values[:count]:
                await send(topic, value, partition=partition)
            count -= min(count, len(values))
        await self.flush()
        return 0.0

    async def consume(self, least: int) -> Taken:
        taken = Taken()
        if self.task.method == "getone":
            for _ in range(least):
                taken.value_bytes += len((await self._consumer.getone()).value)
            taken.records = least
            return taken
        while taken.records < least:
            values = await self._some(min(RECORDS_PER_CALL, least - taken.records))
            taken.records += len(values)
            taken.value_bytes += sum(map(len, values))
        return taken

    async def _some(self, count: int) -> Sequence[bytes]:
        found = await self._consumer.getmany(timeout_ms=int(TIMEOUT_S * 1000), max_records=count)
        if not found:
            raise Stalled("aiokafka: records did not arrive")
        return [record.value for records in found.values() for record in records]

    async def send(self, values: Sequence[bytes]) -> None:
        for value in values:
            await self._producer.send(self.task.topic, value)

    async def flush(self) -> None:
        await self._producer.flush()

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            yield await self._some(RECORDS_PER_CALL)
