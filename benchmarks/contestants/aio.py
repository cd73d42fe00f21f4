"""aiokafka: asyncio, with a compiled record codec."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.contestants.work import Stopwatch, Work
from benchmarks.samples import Sample


async def _send(producer: Any, work: Work, count: int) -> None:
    topic, value, enqueue = work.topic, work.value, producer.send
    for _ in range(count):
        await enqueue(topic, value)
    await producer.flush()


async def send(work: Work) -> Sample:
    """`await send`, whose future is dropped; then `flush`."""
    producer = AIOKafkaProducer(
        bootstrap_servers=work.servers,
        acks=1,
        linger_ms=work.linger_ms,
        max_batch_size=work.batch_bytes,
    )
    async with producer:
        await _send(producer, work, work.warm_up_records)
        watch = Stopwatch()
        await _send(producer, work, work.records)
        return watch.sample(work.records)


async def _consumer(work: Work) -> Any:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=work.servers, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(work.topic, i) for i in range(work.partitions)])
    return consumer


async def getone(work: Work) -> Sample:
    """A record at a time, reading its value."""
    async with await _consumer(work) as consumer:
        await consumer.getone()
        watch = Stopwatch()
        for _ in range(work.records - 1):
            (await consumer.getone()).value  # noqa: B018
        return watch.sample(work.records - 1)


async def getmany(work: Work) -> Sample:
    """Lists of up to 500 records."""
    async with await _consumer(work) as consumer:
        await consumer.getone()
        watch = Stopwatch()
        left = work.records - 1
        while left:
            batches = await consumer.getmany(timeout_ms=10_000, max_records=min(500, left))
            if not batches:
                raise RuntimeError(f"{left} records did not arrive")
            left -= sum(map(len, batches.values()))
        return watch.sample(work.records - 1)
