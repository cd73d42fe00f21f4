"""millrace's own clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from benchmarks.peers.clients.client import Client, Taken
from benchmarks.peers.task import BATCH_BYTES, Task
from benchmarks.peers.values import cycled
from millrace import Consumer, Producer
from millrace.config import Compression

VALUES_PER_CALL = 1_000


class Native(Client):
    """`send` and `send_many`; Arrow, `batches`, `values()` and `async for`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._producer: Producer
        self._consumer: Consumer
        self._opened: Producer | Consumer | None = None
        self._consumes: dict[str, Callable[[int], Awaitable[Taken]]] = {
            "arrow": self._arrow,
            "batches": self._batches,
            "values": self._values,
            "iterate": self._iterate,
        }
        if task.method == "arrow":
            # Imported on first use, which would take longer than a short round.

            import millrace_protocol.records.arrow  # noqa: F401

    async def open_producer(self) -> None:
        task = self.task
        codecs: dict[str, Compression] = {"none": "none", "lz4": "lz4", "zstd": "zstd"}
        self._producer = self._opened = Producer(
            task.servers,
            acks=task.wire_acks,
            linger_ms=task.linger_ms,
            batch_bytes=BATCH_BYTES,
            compression=codecs[task.compression],
        )
        await self._producer.start()

    async def open_consumer(self) -> None:
        self._consumer = self._opened = Consumer(self.task.servers)
        await self._consumer.start()
        partitions = [(self.task.topic, partition) for partition in self.task.partitions]
        self._consumer.assign(partitions, start="earliest")

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def produce(
        self, values: Sequence[bytes], count: int, partition: int | None = None
    ) -> float:
        if self.task.method == "send":
            await self._send_each(values, count, partition)
        else:
            await self._send_many(values, count, partition)
        await self._producer.flush()
        return 0.0

    async def _send_each(self, values: Sequence[bytes], count: int, partition: int | None) -> None:
        topic, room, send = self.task.topic, self._producer.room, self._producer.send
        while count:
            for value in values[:count]:
                await room()
                send(topic, value, partition=partition)
            count -= min(count, len(values))

    async def _send_many(self, values: Sequence[bytes], count: int, partition: int | None) -> None:
        for first in range(0, count, VALUES_PER_CALL):
            some = cycled(values, first, min(VALUES_PER_CALL, count - first))
            await self._producer.room()
            self._producer.send_many(self.task.topic, some, partition=partition)

    async def consume(self, least: int) -> Taken:
        return await self._consumes[self.task.method](least)

    async def _arrow(self, least: int) -> Taken:
        import pyarrow.compute as pc

        taken = Taken()
        async for batch in self._consumer.batches():
            column = batch.to_arrow().column("value")
            taken.records += len(column)
            taken.value_bytes += pc.sum(pc.binary_length(column)).as_py()
            if taken.records >= least:
                break
        return taken

    async def _batches(self, least: int) -> Taken:
        taken = Taken()
        async for batch in self._consumer.batches():
            for record in batch:
                taken.value_bytes += len(record.value or b"")
            taken.records += len(batch)
            if taken.records >= least:
                break
        return taken

    async def _values(self, least: int) -> Taken:
        taken = Taken()
        async for batch in self._consumer.batches():
            values = batch.values()
            taken.records += len(values)
            taken.value_bytes += sum(len(value or b"") for value in values)
            if taken.records >= least:
                break
        return taken

    async def _iterate(self, least: int) -> Taken:
        records = size = 0
        async for record in self._consumer:
            size += len(record.value or b"")
            records += 1
            if records >= least:
                break
        return Taken(records, size)

    async def send(self, values: Sequence[bytes]) -> None:
        for value in values:
            await self._producer.room()
            self._producer.send(self.task.topic, value)

    async def flush(self) -> None:
        await self._producer.flush()

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            yield [record.value or b"" for record in await self._consumer.getmany(10_000)]

    async def join(self) -> None:
        task = self.task
        # Without commits, each new owner reads a partition from its start.
        self._consumer = self._opened = Consumer(
            task.servers, task.topic, group=task.group, start="earliest", auto_commit=False
        )
        await self._consumer.start()
        await self._consumer.getone()

    async def attend(self) -> None:
        while True:
            await self._consumer.getmany(10_000)
