"""The life of a producer under load: bursts of records by all ways of sending.

Owns what is sent and how its outcome is told to the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from millrace import Producer, Receipt
from millrace.errors import (
    BufferFull,
    ClientFailed,
    DeliveryFailed,
    DeliveryTimeout,
    MillraceError,
    UnknownTopicOrPartition,
)
from millrace.partitioner import by_key
from tests.sim.clients import Clients, Life
from tests.sim.ledger import NOT_STAMPED, Where
from tests.sim.options import ProducerStyle
from tests.sim.servers import Servers
from tests.sim.topics import Topic

_NOT_WRITTEN = "nothing was written"
_LONGEST_REST_S = 20.0
"""A producer that rests when the load ends has to end in time (`scenario`)."""


class Producing:
    """One life of a producer."""

    def __init__(self, clients: Clients, life: Life, style: ProducerStyle) -> None:
        self._clients = clients
        self._life = life
        self._style = style
        self._trace = clients.world.trace
        self._ledger = clients.ledger
        self._settling: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Sends to one cluster until the load is over, or it is time for another life."""
        life, options = self._life, self._clients.options
        servers = life.rng.choice(self._clients.topics.servers)
        try:
            async with Producer(
                servers.address, rng=life.rng.fork("client"), **options.producer(self._style)
            ) as producer:
                await self._send_bursts(producer, servers)
        except MillraceError as error:
            self._trace.told(life.name, error)
            await asyncio.sleep(0.2)

    async def probe(self, producer: Producer[bytes, bytes], topic: Topic, number: int) -> None:
        """Sends one record and waits for its ack. Raises what became of it instead."""
        where = topic.name, number
        value = self._new_value(topic, where, b"probe", None)
        self._acked(value, where, await producer.send(topic.name, value, partition=number))

    async def _send_bursts(self, producer: Producer[bytes, bytes], servers: Servers) -> None:
        rng, clients = self._life.rng, self._clients
        while not clients.is_over and rng.random() > 0.01:
            for _ in range(rng.choice((1, 1, 3, 10, 30))):
                await producer.room()
                topics = clients.topics.at(servers)
                if not topics:
                    break
                topic = rng.choice(topics)
                if rng.random() < 0.2:
                    self._send_many(producer, topic)
                else:
                    self._send(producer, topic)
            if rng.random() < 0.1:
                with suppress(DeliveryFailed):
                    await producer.flush()
            rest_s = rng.choice((0.01, 0.1, 0.5, 1.0)) * rng.random() * clients.options.pace
            await asyncio.sleep(min(rest_s, _LONGEST_REST_S))
            self._settling = [task for task in self._settling if not task.done()]
        for task in self._settling:
            await task

    def _send(self, producer: Producer[bytes, bytes], topic: Topic) -> None:
        rng = self._life.rng
        key, number = self._place(topic)
        where = topic.name, number
        stamp_ms = self._stamp_ms() if rng.random() < 0.2 else None
        # Before the call: a batch may be on its way when it returns.
        value = self._new_value(topic, where, self._padding(), stamp_ms)
        try:
            delivery = producer.send(
                topic.name,
                value,
                key=key,
                partition=number if key is None else None,
                timestamp_ms=stamp_ms,
            )
        except MillraceError as error:
            self._refused([value], error)
        else:
            self._settle_later([value], where, delivery)

    def _send_many(self, producer: Producer[bytes, bytes], topic: Topic) -> None:
        """Some records of one partition, or of several by their keys."""
        rng = self._life.rng
        count = rng.choice((1, 3, 20))
        stamp_ms = self._stamp_ms() if rng.random() < 0.2 else None
        places = [self._place(topic, is_keyed=True) for _ in range(count)]
        is_keyed = rng.random() < 0.5
        if not is_keyed:
            places = [(None, places[0][1])] * count
        wheres = [(topic.name, number) for _, number in places]
        values = [self._new_value(topic, where, self._padding(), stamp_ms) for where in wheres]
        try:
            deliveries = producer.send_many(
                topic.name,
                values,
                keys=[key for key, _ in places] if is_keyed else None,
                timestamps_ms=stamp_ms,
                partition=None if is_keyed else places[0][1],
            )
        except MillraceError as error:
            self._refused(values, error)
            return

        async def settle() -> None:
            try:
                receipts = list(await deliveries)
            except MillraceError as error:
                self._failed(values, error, is_certain=False)
            else:
                for value, where, receipt in zip(values, wheres, receipts, strict=True):
                    self._acked(value, where, receipt)

        self._settling.append(asyncio.create_task(settle()))

    def _place(self, topic: Topic, *, is_keyed: bool = False) -> tuple[bytes | None, int]:
        """A key and the partition it goes to; or none, and any partition."""
        rng = self._life.rng
        if not is_keyed and rng.random() < 0.7:
            return None, rng.randrange(topic.partitions)
        key = b"%d" % rng.randrange(10)
        number = by_key(topic.name, key, topic.partitions)
        assert number is not None
        return key, number

    def _padding(self) -> bytes:
        rng = self._life.rng
        return b"." * rng.choice((0, 10, 100, rng.randint(0, 2000)))

    def _stamp_ms(self) -> int:
        """Some time in the last seconds or the next."""
        return self._life.process.clock.wall_ms() + self._life.rng.randint(-5000, 5000)

    def _new_value(self, topic: Topic, where: Where, padding: bytes, stamp_ms: int | None) -> bytes:
        if topic.is_stamped:
            stamp_ms = self._stamped_from_ms(topic)
        elif stamp_ms is None:
            stamp_ms = self._life.process.clock.wall_ms()
        return self._ledger.sent(
            self._life.number,
            where,
            padding=padding,
            stamp_ms=stamp_ms,
            is_idempotent=self._style.idempotent,
        )

    def _stamped_from_ms(self, topic: Topic) -> int:
        """The broker's time, unless it may go back before the record is there."""
        steps = "clock" in self._clients.options.troubles
        return NOT_STAMPED if steps else topic.servers.wall_ms()

    # Outcomes

    def _settle_later(
        self, values: list[bytes], where: Where, delivery: Awaitable[Receipt]
    ) -> None:
        self._settling.append(asyncio.create_task(self._settle(values, where, delivery)))

    async def _settle(
        self, values: list[bytes], where: Where, delivery: Awaitable[Receipt]
    ) -> None:
        try:
            receipt = await delivery
        except MillraceError as error:
            is_certain = isinstance(error, DeliveryTimeout) and _NOT_WRITTEN in str(error)
            self._failed(values, error, is_certain=is_certain)
        else:
            self._acked(values[0], where, receipt)

    def _acked(self, value: bytes, where: Where, receipt: Receipt) -> None:
        if (receipt.topic, receipt.partition) != where:
            self._trace.violation(f"{value[:20]!r} for {where} was acked elsewhere: {receipt}")
        if self._clients.options.promises(self._style.acks):
            self._ledger.acked(value, receipt.offset, now_s=self._clients.world.now_s())
        else:
            self._ledger.ended(value, is_certain=False)
        self._trace.note(f"ack {self._life.name} {value[:10]!r} {receipt.offset}")

    def _failed(self, values: list[bytes], error: MillraceError, *, is_certain: bool) -> None:
        if isinstance(error, ClientFailed):
            self._trace.violation(f"a producer died: {error!r}")
        self._trace.told(self._life.name, error)
        self._trace.sometimes("a send failed for sure" if is_certain else "a send ended unknown")
        for value in values:
            self._ledger.ended(value, is_certain=is_certain)

    def _refused(self, values: list[bytes], error: MillraceError) -> None:
        """`send` took nothing."""
        self._failed(values, error, is_certain=True)
        if isinstance(error, BufferFull):
            self._trace.violation(f"there was room, and then not: {error}")
        if not isinstance(error, UnknownTopicOrPartition):
            raise error
