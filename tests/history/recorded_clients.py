"""A producer and a consumer whose sends and polls are a history.

Owns the load: numbers, sent in order to the partitions of a topic in turn. Judges nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque

from millrace import Consumer, Delivery, MillraceError, Producer, Record
from tests.history.operations import (
    Acked,
    History,
    Polled,
    ReadToEnd,
    Sent,
    Sought,
    Unknown,
    Watermark,
)

LAG_RECORDS = 2_000
"""Records sent and not acked at a time: enough that every fault hits batches in flight."""
ROUND_RECORDS = LAG_RECORDS // 20
PRODUCER, CONSUMER, FINAL_READER = 1, 2, 3


class RecordedSends:
    """Numbers sent to partitions in turn, at most `LAG_RECORDS` ahead of their acks."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        history: History,
        topic: str,
        partitions: int,
        *,
        pause_s: float = 0,
    ) -> None:
        """`pause_s` is between one round of `ROUND_RECORDS` and the next."""
        self._producer = producer
        self._history = history
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._stopped = False
        self._progress = asyncio.Condition()
        self._unacked: deque[tuple[int, Delivery]] = deque()
        self.sent = 0
        self.acks = [0] * partitions
        """Of each partition."""

    def stop(self) -> None:
        """Has `send_until_told` send no more."""
        self._stopped = True

    async def send_until_told(self) -> None:
        """Ends when told to and everything sent is acked, or given up."""
        while not self._stopped:
            await self._producer.room()
            for _ in range(ROUND_RECORDS):
                number = self.sent
                partition = number % self._partitions
                # Noted before the send: it may be appended from this moment on.
                self._history.add(Sent(PRODUCER, f"{self._topic}-{partition}", number))
                delivery = self._producer.send(self._topic, b"%d" % number, partition=partition)
                self._unacked.append((number, delivery))
                self.sent += 1
            await self._settle(LAG_RECORDS)
            await asyncio.sleep(self._pause_s)
        await self._settle(0)

    async def _settle(self, left: int) -> None:
        """Notes what became of the oldest sends until no more than `left` are open."""
        unacked = self._unacked
        while len(unacked) > left or (unacked and unacked[0][1].done()):
            number, delivery = unacked.popleft()
            try:
                receipt = await delivery
            except MillraceError:
                self._history.add(Unknown(number))
            else:
                self._history.add(Acked(number, receipt.offset))
                self.acks[number % self._partitions] += 1
        async with self._progress:
            self._progress.notify_all()

    async def acked_more(self, count: int) -> None:
        """Returns when `count` more records are acked."""
        wanted = sum(self.acks) + count
        async with self._progress:
            await self._progress.wait_for(lambda: sum(self.acks) >= wanted)

    async def acked_everywhere(self) -> None:
        """Returns when records of every partition are acked that are sent from now on."""
        wanted = [acks + LAG_RECORDS // self._partitions + 1 for acks in self.acks]
        async with self._progress:
            await self._progress.wait_for(
                lambda: all(has >= least for has, least in zip(self.acks, wanted, strict=True))
            )


class RecordedReads:
    """One consumer and what it is given."""

    def __init__(self, consumer: Consumer[bytes, bytes], history: History, process: int) -> None:
        self._consumer = consumer
        self._history = history
        self._process = process
        self.count = 0

    async def follow(self) -> None:
        """Reads until cancelled."""
        while True:
            self.note(await self._consumer.getmany())

    async def note_watermarks(self) -> None:
        """Asks how far each partition can be read."""
        ends = await self._consumer.end_offsets()
        for where, offset in ends.items():
            self._history.add(Watermark(self._process, str(where), offset))

    async def read_to(self, ends: dict[str, int]) -> None:
        """Reads until every partition was read to its end."""
        left = {partition for partition, end in ends.items() if end > 0}
        while left:
            records = await self._consumer.getmany(timeout_ms=10_000)
            if not records:
                raise TimeoutError(f"nothing to read, and the ends are {ends}")
            self.note(records)
            for record in records:
                if record.offset + 1 >= ends[str(record.topic_partition)]:
                    left.discard(str(record.topic_partition))

    def note(self, records: list[Record[bytes, bytes]]) -> None:
        """Adds the records to the history, a poll for each partition."""
        polls: dict[str, list[tuple[int, int]]] = {}
        for record in records:
            pair = (record.offset, int(record.value or b""))
            polls.setdefault(str(record.topic_partition), []).append(pair)
        for partition, pairs in polls.items():
            self._history.add(Polled(self._process, partition, pairs))
        self.count += len(records)


async def read_all(servers: str, topic: str, history: History) -> None:
    """Reads a topic to its ends: the last word about what it holds."""
    async with Consumer(servers, topic, start="earliest") as consumer:
        reading = RecordedReads(consumer, history, FINAL_READER)
        ends = {str(where): end for where, end in (await consumer.end_offsets()).items()}
        for partition in ends:
            history.add(Sought(FINAL_READER, partition, 0))
        await reading.read_to(ends)
        for partition, end in ends.items():
            history.add(ReadToEnd(partition, 0, end))
