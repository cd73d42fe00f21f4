"""millrace's own clients."""

from __future__ import annotations

from benchmarks.contestants.work import Stopwatch, Work
from benchmarks.samples import Sample
from millrace import Consumer, Producer

VALUES_PER_CALL = 1_000


def _producer(work: Work) -> Producer:
    return Producer(
        work.servers, acks=work.acks, linger_ms=work.linger_ms, batch_bytes=work.batch_bytes
    )


async def _send(producer: Producer, work: Work, count: int) -> None:
    topic, value, room, enqueue = work.topic, work.value, producer.room, producer.send
    for _ in range(count):
        await room()
        enqueue(topic, value)
    await producer.flush()


async def send(work: Work) -> Sample:
    """`send` after `room`, its back-pressure, without awaiting acks; then `flush`."""
    async with _producer(work) as producer:
        await _send(producer, work, work.warm_up_records)
        watch = Stopwatch()
        await _send(producer, work, work.records)
        return watch.sample(work.records)


async def _send_many(producer: Producer, work: Work, count: int) -> None:
    value = work.value
    for start in range(0, count, VALUES_PER_CALL):
        await producer.room()
        producer.send_many(work.topic, [value] * min(VALUES_PER_CALL, count - start))
    await producer.flush()


async def send_many(work: Work) -> Sample:
    """`send_many` of a thousand values after `room`, without awaiting acks; then `flush`."""
    async with _producer(work) as producer:
        await _send_many(producer, work, work.warm_up_records)
        watch = Stopwatch()
        await _send_many(producer, work, work.records)
        return watch.sample(work.records)


async def fill(work: Work) -> Sample:
    """Writes the records that the consumers read, the same number to every partition."""
    async with _producer(work) as producer:
        watch = Stopwatch()
        for partition in range(work.partitions):
            for _ in range(work.records // work.partitions):
                await producer.room()
                producer.send(work.topic, work.value, partition=partition)
            await producer.flush()
        return watch.sample(work.records)


async def iterate(work: Work) -> Sample:
    """`async for` over the consumer, a record at a time, reading its value."""
    async with Consumer(work.servers, work.topic) as consumer:
        await consumer.getone()
        watch = Stopwatch()
        left = work.records - 1
        async for record in consumer:
            record.value  # noqa: B018
            left -= 1
            if not left:
                break
        return watch.sample(work.records - 1)


async def arrow_batches(work: Work) -> Sample:
    """`batches`, each made an Arrow record batch."""
    # Imported on first use, which takes longer than all that follows.
    import millrace_protocol.records.arrow  # noqa: F401

    async with Consumer(work.servers, work.topic) as consumer:
        batches = consumer.batches()
        timed = left = work.records - (await anext(batches)).to_arrow().num_rows
        watch = Stopwatch()
        while left:
            left -= (await anext(batches)).to_arrow().num_rows
        return watch.sample(timed)
