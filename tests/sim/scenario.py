"""One run: a broker on a bad day, and clients that go on as if nothing were.

Owns the shape of a run: options drawn from the seed, load, faults, healing, then liveness, a last
read of everything, and the verdict. Broker and clients are the real ones.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from millrace import Admin, Consumer, Producer, Receipt
from millrace.errors import (
    ClientFailed,
    Closed,
    DeliveryFailed,
    MillraceError,
    OffsetOutOfRange,
    TopicAlreadyExists,
)
from tests.sim.host import Rng, World
from tests.sim.ledger import Found, Ledger, Promise, Sent, Where
from tests.sim.loop import Stuck
from tests.sim.options import Options
from tests.sim.supervisor import ADDRESS, Supervisor

T = TypeVar("T")
LIVENESS_S = 30.0
"""How long after healing everything must work again."""
TURNS_MAX = 3_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to; `violations` is empty when all is well."""

    seed: int
    violations: list[str]
    counts: Counter[str]
    digest: str
    virtual_s: float
    sent: int
    acked: int


def run_seed(seed: int, *, show: Callable[[str], object] | None = None) -> Outcome:
    """Runs one seed to its end."""
    rng = Rng(f"millrace/{seed}")
    options = Options.draw(rng.fork("options"))
    world = World(
        rng,
        latency_max_s=options.latency_max_s,
        blocking_max_s=options.blocking_max_s,
        window_bytes=options.window_bytes,
        segment_bytes=options.network_segment_bytes,
        turns_max=TURNS_MAX,
        show=show,
    )
    # Finalizers would run when the collector happens to, and not at the same place in each run.
    gc.disable()
    scenario = Scenario(world, options)
    started_s = world.loop.time()
    try:
        world.trace.note(f"{options}")
        world.run(scenario.run())
    except Stuck as error:
        world.trace.violation(f"stuck: {error}")
    finally:
        virtual_s = world.loop.time() - started_s
        world.close()
        gc.enable()
    ledger = scenario.ledger
    return Outcome(
        seed,
        world.trace.violations,
        world.trace.counts,
        world.trace.digest,
        virtual_s,
        len(ledger.sent),
        ledger.acked_count,
    )


class Scenario:
    """The run of one seed."""

    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.options = options
        self.ledger = Ledger()
        self.broker = Supervisor(world, options.config(), self.ledger)
        self._rng = world.rng.fork("scenario")
        self._topics: dict[str, int] = {}
        self._is_over = False
        self._retries: Counter[str] = Counter()

    async def run(self) -> None:
        """Everything, from the first start of the broker to the verdict."""
        loop, world, options = self.world.loop, self.world, self.options
        keeping = loop.create_task(self.broker.keep_up())
        admin = world.client("admin")
        for number in range(options.topics):
            await self._within("create topics", loop.start(admin, self._create(f"t{number}")))
        load = [
            loop.start(world.client(name), work(name))
            for count, kind, work in (
                (options.producers, "producer", self._produce),
                (options.consumers, "consumer", self._consume),
            )
            for name in (f"{kind}{number}" for number in range(count))
        ]
        if options.creates_topics:
            load.append(loop.start(admin, self._create_more()))
        await self._trouble()
        world.trace.note("heal")
        world.network.heal()
        await self.broker.heal()
        self._is_over = True
        patience_s = options.delivery_timeout_ms / 1000 + LIVENESS_S
        done, pending = await asyncio.wait(load, timeout=patience_s)
        for task in sorted(pending, key=lambda task: task.get_name()):
            world.trace.violation(f"{task} did not come to its end in {patience_s} s")
        for finished in sorted(done, key=lambda task: task.get_name()):
            if (error := finished.exception()) is not None:
                world.trace.violation(f"a client failed: {error!r}")
        probe = world.client("probe")
        await self._within("probe", loop.start(probe, self._until_it_works(self._probe)))
        await self._within("settle", loop.create_task(self.broker.restart_in_order()))
        reading = loop.start(probe, self._until_it_works(self._read_all))
        final = await self._within("last read", reading)
        keeping.cancel()
        if final is not None:
            for sentence in self.ledger.check(final):
                world.trace.violation(sentence)

    async def _until_it_works(self, work: Callable[[], Awaitable[T]]) -> T:
        """A client that does not reach the broker in its short time is made anew."""
        while True:
            try:
                return await work()
            except MillraceError as error:
                if not error.retriable:
                    raise
                self._note_error("probe", error)
                await asyncio.sleep(0.2)

    async def _within(self, what: str, task: asyncio.Task[Any]) -> Any:
        done, _ = await asyncio.wait([task], timeout=LIVENESS_S)
        if not done:
            self.world.trace.violation(f"{what}: not done within {LIVENESS_S} s")
            return None
        if (error := task.exception()) is not None:
            self.world.trace.violation(f"{what}: {error!r}")
            return None
        return task.result()

    # Clients

    async def _create(self, name: str) -> None:
        """Makes a topic, however often it takes."""
        rng = self._rng.fork(name)
        durability, partitions = rng.choice(self.options.durabilities), rng.randint(1, 3)
        configs = {
            "durability": durability,
            "segment.bytes": str(rng.choice((1024, 4096, 65536))),
            "index.interval.bytes": str(rng.choice((0, 256, 4096))),
            "message.timestamp.type": rng.choice(("CreateTime", "LogAppendTime")),
        }
        while True:
            try:
                async with Admin(ADDRESS, rng=rng, **self.options.client()) as admin:
                    await admin.create_topic(name, partitions=partitions, configs=configs)
                break
            except TopicAlreadyExists:
                break
            except MillraceError as error:
                self._note_error("admin", error)
                await asyncio.sleep(0.3)
        self.world.trace.note(f"topic {name} {partitions} {configs}")
        self.ledger.promises[name] = Promise(self.options.idempotent)
        if durability == "os":
            self.broker.forgetful.append(name)
        self._topics[name] = partitions

    async def _create_more(self) -> None:
        number = self.options.topics
        while not self._is_over:
            await asyncio.sleep(self._rng.random() * 4)
            await self._create(f"t{number}")
            number += 1

    async def _produce(self, name: str) -> None:
        rng = self._rng.fork(name)
        life = 0
        while not self._is_over:
            life += 1
            try:
                async with Producer(
                    ADDRESS, rng=rng.fork(f"client/{life}"), **self.options.producer()
                ) as producer:
                    await self._send(producer, f"{name}.{life}", rng)
            except MillraceError as error:
                self._note_error(name, error)
                await asyncio.sleep(0.2)

    async def _send(self, producer: Producer[bytes, bytes], name: str, rng: Rng) -> None:
        """Sends bursts until the load is over; returns with every record settled."""
        settling: list[asyncio.Task[None]] = []
        number = 0
        while not self._is_over and rng.random() > 0.01:
            for _ in range(rng.choice((1, 1, 3, 10, 30))):
                await producer.room()
                topic = rng.choice(list(self._topics))
                where = topic, rng.randrange(self._topics[topic])
                padding = b"." * rng.choice((0, 10, 100, rng.randint(0, 2000)))
                value = f"{name} {number} ".encode() + padding
                sent = Sent(value, where, name, number, self.world.loop.time())
                number += 1
                # Before the call: a batch may be on its way when it returns.
                self.ledger.note_sent(sent)
                delivery = producer.send(topic, value, partition=where[1])
                settling.append(asyncio.create_task(self._settle(sent, delivery)))
            if rng.random() < 0.1:
                with suppress(DeliveryFailed):
                    await producer.flush()
            await asyncio.sleep(rng.choice((0.01, 0.1, 0.5, 1.0)) * rng.random())
            settling = [task for task in settling if not task.done()]
        for task in settling:
            await task

    async def _settle(self, sent: Sent, delivery: Awaitable[Receipt]) -> None:
        try:
            receipt = await delivery
        except MillraceError as error:
            if isinstance(error, ClientFailed):
                self.world.trace.violation(f"a producer died: {error!r}")
            self._note_error(sent.producer, error)
        else:
            sent.offset = receipt.offset
            if (receipt.topic, receipt.partition) != sent.where:
                self.world.trace.violation(f"{sent} was acked elsewhere: {receipt}")
            self.world.trace.note(f"ack {sent.producer} {sent.number} {receipt.offset}")

    async def _consume(self, name: str) -> None:
        rng = self._rng.fork(name)
        life = 0
        while not self._is_over:
            life += 1
            try:
                async with Consumer(
                    ADDRESS, *self._topics, rng=rng.fork(str(life)), **self.options.consumer()
                ) as consumer:
                    while not self._is_over and rng.random() > 0.005:
                        for record in await consumer.getmany(rng.randint(1, 200), timeout_ms=500):
                            where = record.topic, record.partition
                            value = record.value or b""
                            self.ledger.note_read(f"{name}.{life}", where, record.offset, value)
            except OffsetOutOfRange as error:
                if not self.broker.forgetful:
                    self.world.trace.violation(f"{name}: {error!r}")
                self.world.trace.sometimes("a consumer fell out of a log that was cut")
            except MillraceError as error:
                if isinstance(error, ClientFailed):
                    self.world.trace.violation(f"a consumer died: {error!r}")
                self._note_error(name, error)
                await asyncio.sleep(0.2)

    def _note_error(self, name: str, error: MillraceError) -> None:
        self.world.trace.note(f"{name} got {type(error).__name__}: {error}")
        if not isinstance(error, Closed):
            self.world.trace.sometimes("a client was told of an error")

    # Trouble

    async def _trouble(self) -> None:
        """Faults, one after the other, with pauses in which things may recover, or not."""
        rng, loop = self._rng.fork("trouble"), self.world.loop
        until_s = loop.time() + self.options.trouble_s
        kinds = self.options.troubles
        if not kinds:
            await asyncio.sleep(self.options.trouble_s)
            return
        while loop.time() < until_s:
            await asyncio.sleep(rng.expovariate(1 / self.options.trouble_every_s))
            kind = rng.choice(kinds)
            self.world.trace.note(f"trouble: {kind}")
            await getattr(self, f"_{kind}")(rng)

    async def _kill(self, rng: Rng) -> None:
        self.broker.kill(pause_s=rng.random() * 2)

    async def _power(self, rng: Rng) -> None:
        if rng.random() < 0.5:
            self.broker.cut_power(pause_s=rng.random() * 2)
        else:
            self.broker.cut_power_soon(rng.randint(0, 40), pause_s=rng.random() * 2)

    async def _restart(self, rng: Rng) -> None:
        await self.broker.restart_in_order()

    async def _reset(self, rng: Rng) -> None:
        for _ in range(rng.randint(1, 3)):
            self.world.network.break_one()

    async def _cut(self, rng: Rng) -> None:
        others = [process.machine for process in self.world.processes if process.is_alive]
        for machine in rng.sample(others, min(len(others), rng.randint(1, 3))):
            ways = [(machine, "broker"), ("broker", machine)]
            for source, target in rng.choice((ways, ways[:1], ways[1:])):
                if source != target:
                    self.world.network.cut(source, target)
        await asyncio.sleep(rng.random() * 4)
        self.world.network.heal()

    async def _full(self, rng: Rng) -> None:
        self.broker.machine.is_full = True
        await asyncio.sleep(rng.random() * 3)
        self.broker.machine.is_full = False

    async def _sync_error(self, rng: Rng) -> None:
        self.broker.machine.next_sync_fails = True

    # The end

    async def _probe(self) -> None:
        """New records are taken everywhere, by a client that saw nothing of the trouble."""
        async with Producer(
            ADDRESS, rng=self._rng.fork("probe"), **self.options.producer()
        ) as producer:
            wheres = [(t, p) for t, count in self._topics.items() for p in range(count)]
            for number, where in enumerate(wheres):
                value, now_s = b"probe %d" % number, self.world.loop.time()
                sent = Sent(value, where, "probe", number, now_s)
                self.ledger.note_sent(sent)
                await self._settle(sent, producer.send(where[0], sent.value, partition=where[1]))
                if sent.offset is None:
                    self.world.trace.violation(f"{where} takes no records after all has healed")

    async def _read_all(self) -> dict[Where, Found]:
        """All partitions, from the beginning to where they end now."""
        final: dict[Where, Found] = {}
        async with Consumer(
            ADDRESS, *self._topics, rng=self._rng.fork("last"), **self.options.consumer()
        ) as consumer:
            left = await consumer.end_offsets()
            final = {(where.topic, where.partition): [] for where in left}
            ends = {(where.topic, where.partition): end for where, end in left.items()}
            while any(len(final[where]) < end for where, end in ends.items()):
                for record in await consumer.getmany(1000):
                    where = record.topic, record.partition
                    final[where].append((record.offset, record.value or b""))
        if set(final) != {(t, p) for t, count in self._topics.items() for p in range(count)}:
            self.world.trace.violation(f"partitions are missing: {sorted(final)}")
        return final
