"""One run: brokers on a bad day, and clients that go on as if nothing were.

Owns the shape of a run: options drawn from the seed, load, faults, healing, then liveness, a last
read of everything, and the verdict. Brokers and clients are the real ones. The brokers are
independent: each has topics of its own, and a client uses one of them at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from millrace_simulation.world import Rng, World
from tests.sim.clients import Clients, Life
from tests.sim.consuming import Consuming
from tests.sim.ledger import Ledger
from tests.sim.lookups import Lookups
from tests.sim.options import Options, ProducerStyle
from tests.sim.producing import Producing
from tests.sim.reading import LIVENESS_S, LastReading
from tests.sim.rot import Rot
from tests.sim.run import Outcome, run
from tests.sim.supervisor import Supervisor
from tests.sim.topics import Topics
from tests.sim.troubles import Troubles


def run_seed(
    seed: int,
    *,
    troubles: tuple[str, ...] | None = None,
    show: Callable[[str], object] | None = None,
) -> Outcome:
    """Runs one seed to its end, with other troubles than its own if they are given."""
    rng = Rng(f"millrace/{seed}")
    options = Options.draw(rng.fork("options"))
    if troubles is not None:
        options = options.with_troubles(troubles)
    return run(seed, rng, options, lambda world: Scenario(world, options), show=show)


class Scenario:
    """The run of one seed."""

    is_one_broker = True

    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.options = options
        self.ledger = Ledger()
        self.rot = Rot(world.trace)
        self._rng = world.rng.fork("scenario")
        self._lookups = Lookups(self.ledger, world.now_s)
        self._topics = Topics(world, options, self.ledger, self._rng.fork("topics"))
        self._clients = Clients(world, options, self._topics, self.ledger)
        self._brokers = [
            Supervisor(
                world, options, number, rot=self.rot, on_power_cut=self._topics.forget_unsynced
            )
            for number in range(options.brokers)
        ]
        self._topics.servers.extend(self._brokers)

    async def run(self) -> None:
        """Everything, from the first start of the brokers to the verdict."""
        loop, world, options = self.world.loop, self.world, self.options
        keeping = [loop.create_task(broker.keep_up()) for broker in self._brokers]
        admin = world.process("admin", "admin")
        for number in range(options.topics):
            created = loop.start(admin, self._topics.create(number))
            await world.within("create topics", created, LIVENESS_S)
        load = self._start_load()
        if options.churns:
            load.append(loop.start(admin, self._topics.churn(lambda: self._clients.is_over)))
        troubles = Troubles(
            world,
            options,
            brokers=self._brokers,
            topics=self._topics,
            clients=self._clients,
            rot=self.rot,
            rng=self._rng.fork("trouble"),
        )
        await troubles.run(options.trouble_s)
        world.trace.note("heal")
        world.network.heal()
        for broker in self._brokers:
            await broker.heal()
        self._clients.is_over = True
        limit_s = options.delivery_timeout_ms / 1000 + LIVENESS_S
        for task in load:
            await world.within(f"{task.get_name()} after healing", task, limit_s)
        await self._last_word()
        for task in keeping:
            task.cancel()
        for sentence in self.ledger.check():
            world.trace.violation(sentence)

    def _start_load(self) -> list[asyncio.Task[None]]:
        keep, clients = self._clients.keep, self._clients

        def producing(style: ProducerStyle) -> Callable[[Life], Coroutine[Any, Any, None]]:
            return lambda life: Producing(clients, life, style).run()

        def consuming(life: Life) -> Coroutine[Any, Any, None]:
            return Consuming(clients, life, self._lookups, self.rot).run()

        works = [
            *(
                keep(f"producer{number}", producing(style))
                for number, style in enumerate(self.options.producers)
            ),
            *(keep(f"consumer{number}", consuming) for number in range(self.options.consumers)),
        ]
        return [self.world.loop.create_task(work) for work in works]

    async def _last_word(self) -> None:
        world, loop = self.world, self.world.loop
        process = world.process("last", "last")
        life = Life(
            "last",
            self.ledger.process("last"),
            self._rng.fork("last"),
            process,
            loop.create_future(),
        )
        last = LastReading(self._clients, life, lookups=self._lookups, rot=self.rot)
        # Each step has its own limit; this one is for a client that never gets to them.
        limit_s = 10 * LIVENESS_S * (2 + len(self._topics.wheres))
        if "full_start" in self.options.troubles:
            for broker in self._brokers:
                if await broker.start_full(self._rng):
                    reading = loop.start(process, last.read_on_full_disk(broker))
                    await world.within(f"read {broker.name} on a full disk", reading, limit_s)
                await broker.heal()
        if "clock" in self.options.troubles:
            for broker in self._brokers:
                waiting = loop.start(process, last.wait_while_clock_steps(broker))
                await world.within(f"long poll of {broker.name}", waiting, limit_s)
        await world.within("probe", loop.start(process, last.probe()), limit_s)
        for broker in self._brokers:
            settling = loop.create_task(broker.restart_in_order())
            await world.within(f"settle {broker.name}", settling, LIVENESS_S * 2)
        await world.within("last read", loop.start(process, last.read()), limit_s)
