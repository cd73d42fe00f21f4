"""The life of a consumer under load: it reads, seeks, and asks for offsets.

Owns what is asked and how the answers are told to the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from millrace import Consumer, Record
from millrace.errors import ClientFailed, CorruptMessage, MillraceError, OffsetOutOfRange
from millrace_simulation.broker import is_disk_error
from tests.sim.clients import Clients, Life
from tests.sim.ledger import Ledger, Where
from tests.sim.lookups import Lookup, Lookups
from tests.sim.rot import Rot
from tests.sim.topics import Topic

_WAIT_S = 0.5


class Consuming:
    """One life of a consumer."""

    def __init__(self, clients: Clients, life: Life, lookups: Lookups, rot: Rot) -> None:
        self._clients = clients
        self._life = life
        self._lookups = lookups
        self._rot = rot
        self._trace = clients.world.trace
        self._ledger = clients.ledger
        self._topics: list[Topic] = []

    async def run(self) -> None:
        """Reads from one cluster until the load is over, or it is time for another life."""
        life, clients = self._life, self._clients
        servers = life.rng.choice(clients.topics.servers)
        self._topics = clients.topics.at(servers)
        if not self._topics:
            return
        starts_at_zero = life.rng.random() < 0.8
        try:
            async with Consumer(
                servers.address,
                *(topic.name for topic in self._topics),
                rng=life.rng.fork("client"),
                start="earliest" if starts_at_zero else self._some_time(),
                **clients.options.consumer(),
            ) as consumer:
                self._note_assignment(starts_at_zero=starts_at_zero)
                await self._read(consumer)
        except OffsetOutOfRange as error:
            self._trace.told(life.name, error)
            name = str(error).partition(":")[0].rpartition("-")[0]
            topic = next(topic for topic in self._topics if topic.name == name)
            if topic.is_whole and not self._may_forget(topic):
                self._trace.violation(f"{life.name}: {error!r}")
            self._trace.sometimes("a consumer fell out of a log that was cut")
        except MillraceError as error:
            self._trace.told(life.name, error)
            if isinstance(error, ClientFailed):
                self._trace.violation(f"a consumer died: {error!r}")
            if isinstance(error, CorruptMessage) and not is_disk_error(str(error)):
                self._rot.note_corruption(life.name, error)
            await asyncio.sleep(0.2)

    def _may_forget(self, topic: Topic) -> bool:
        return (
            topic.is_forgetful
            or self._clients.options.churns
            or any(self._rot.is_damaged(topic.servers.name, *where) for where in topic.wheres)
        )

    def _note_assignment(self, *, starts_at_zero: bool) -> None:
        wheres = [where for topic in self._topics for where in topic.wheres]
        self._ledger.assigned(self._life.number, wheres)
        if starts_at_zero:
            for topic in self._topics:
                for where in topic.wheres if topic.is_whole else ():
                    self._ledger.sought(self._life.number, where, 0)

    async def _read(self, consumer: Consumer[bytes, bytes]) -> None:
        rng, clients = self._life.rng, self._clients
        reads_batches = rng.random() < 0.25
        while not clients.is_over and rng.random() > 0.005:
            draw = rng.random()
            if draw < 0.03:
                await self._ask_for_ends(consumer)
            elif draw < 0.1:
                await self._look_up(consumer)
            elif draw < 0.13:
                await self._seek(consumer)
            elif reads_batches:
                await self._read_batches(consumer)
            else:
                records = await consumer.getmany(rng.randint(1, 200), timeout_ms=int(_WAIT_S * 1e3))
                note_records(self._ledger, self._life.number, records)

    async def _read_batches(self, consumer: Consumer[bytes, bytes]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                async for batch in consumer.batches():
                    note_records(self._ledger, self._life.number, batch)

    async def _ask_for_ends(self, consumer: Consumer[bytes, bytes]) -> None:
        lives = dict(self._ledger.lives)
        for where, offset in (await consumer.end_offsets()).items():
            self._ledger.saw_end(self._life.number, where, offset, life=lives.get(where, 0))

    async def _look_up(self, consumer: Consumer[bytes, bytes]) -> None:
        where = self._some_where()
        await look_up(
            consumer,
            where,
            self._some_time(),
            lookups=self._lookups,
            ledger=self._ledger,
        )
        self._trace.sometimes("a time was looked up")

    async def _seek(self, consumer: Consumer[bytes, bytes]) -> None:
        rng, number = self._life.rng, self._life.number
        where = self._some_where()
        if rng.random() < 0.3:
            consumer.seek_to_timestamp(self._some_time(), where)
            self._ledger.sought(number, where, None)
            return
        offset = rng.randint(0, await consumer.position(where))
        consumer.seek(where, offset)
        self._ledger.sought(number, where, offset)

    def _some_where(self) -> Where:
        topic = self._life.rng.choice(self._topics)
        return self._life.rng.choice(topic.wheres)

    def _some_time(self) -> int:
        """Of the last half minute, or a little later than now."""
        return self._life.process.clock.wall_ms() + self._life.rng.randint(-30_000, 8_000)


async def look_up(
    consumer: Consumer[bytes, bytes],
    where: Where,
    time_ms: int,
    *,
    lookups: Lookups,
    ledger: Ledger,
) -> tuple[int, int] | None:
    """Asks for the first offset of a time, and notes the answer."""
    began_s, life = lookups.now_s(), ledger.lives[where]
    (answer,) = (await consumer.offsets_for_times({where: time_ms})).values()
    (start_offset,) = (await consumer.beginning_offsets(where)).values()
    lookups.note(Lookup(where, time_ms, answer, began_s, life, start_offset))
    return answer


def note_records(ledger: Ledger, process: int, records: Iterable[Record[bytes, bytes]]) -> None:
    """Tells the ledger of records that a consumer was given, a poll for each partition."""
    polls: dict[Where, list[tuple[int, bytes]]] = {}
    for record in records:
        polls.setdefault((record.topic, record.partition), []).append(
            (record.offset, record.value or b"")
        )
    for where, found in polls.items():
        ledger.polled(process, where, found)
