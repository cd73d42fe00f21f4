"""A topic of many updates on few keys, before and after its compaction.

Real clients on a real broker, in one loop. `is_measured` adds what producers of another topic feel
of the pass; broker and clients share an interpreter here, as in a program with an embedded broker.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field

from millrace import Admin, Consumer, Producer
from millrace_server.partitions.partition import Partition
from millrace_server.testing import Broker
from tests.broker.wire import until

SEND_COUNT = 10_000
LAST = b"last"


@dataclass
class Shrinking:
    """Sizes in bytes of the one partition, durations in seconds, latencies in milliseconds."""

    updates: int
    bytes_before: int = 0
    bytes_after: int = 0
    records_after: int = 0
    is_same: bool = False
    pass_s: float = 0
    quiet_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)


async def shrink(
    broker: Broker, *, updates: int, keys: int, segment_bytes: int, is_measured: bool = False
) -> Shrinking:
    """Writes updates on keys drawn at random, reads all, cleans, reads all again."""
    rng = random.Random(1)
    found = Shrinking(updates)
    async with Admin(broker.servers) as admin:
        await admin.create_topic(
            "state", configs={"cleanup.policy": "compact", "segment.bytes": segment_bytes}
        )
        await admin.create_topic("other")
    partition = broker.node.broker.partitions.get("state", 0)
    async with Producer(broker.servers) as producer:
        for start in range(0, updates, SEND_COUNT):
            numbers = range(start, min(start + SEND_COUNT, updates))
            names = [b"key-%d" % rng.randrange(keys) for _ in numbers]
            # One in a hundred deletes its key.
            values = [b"%080d" % n if n % 100 else None for n in numbers]
            await producer.send_many("state", values, keys=names)
        # Two that do not fit into one segment: all before the second is closed.
        for size_bytes in (segment_bytes // 2 + 1, segment_bytes // 2 + 1, 1):
            await producer.send("state", b"x" * size_bytes, key=LAST)
        before, _ = await final_map(broker)
        found.bytes_before = partition.log.size_bytes
        if is_measured:
            found.quiet_ms = await latencies(producer, asyncio.sleep(2))
        begun = time.perf_counter()
        if is_measured:
            found.beside_ms = await latencies(producer, clean(broker, partition))
        else:
            await clean(broker, partition)
        found.pass_s = time.perf_counter() - begun
    after, found.records_after = await final_map(broker)
    found.bytes_after = partition.log.size_bytes
    found.is_same = before == after
    return found


async def clean(broker: Broker, partition: Partition) -> None:
    """One pass over all but the active segment, which comes into force."""
    await partition.acked(partition.log.end_offset)
    partition._flusher.request(checkpoint=True)
    await until(lambda: not partition._flusher._is_running)
    await broker.node.broker.compactor.look_after(partition)


async def final_map(broker: Broker) -> tuple[dict[bytes, bytes], int]:
    """What a consumer knows that has read the whole topic, and of how many records."""
    end_offset = broker.node.broker.partitions.get("state", 0).high_watermark
    known: dict[bytes, bytes] = {}
    count = 0
    async with Consumer(broker.servers, "state") as consumer:
        async for batch in consumer.batches():
            for record in batch:
                count += 1
                if record.value is None:
                    known.pop(record.key or b"", None)
                else:
                    known[record.key or b""] = record.value
                if record.offset == end_offset - 1:
                    return known, count
    raise AssertionError("the topic ended before its last record")


async def latencies(
    producer: Producer[bytes, bytes], beside: Coroutine[None, None, None]
) -> list[float]:
    """How long each of many sends took to be acked, one after the other, while something runs."""
    task = asyncio.ensure_future(beside)
    found = []
    while not task.done():
        begun = time.perf_counter()
        await producer.send("other", b"value")
        found.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(0.002)
    await task
    return sorted(found)
