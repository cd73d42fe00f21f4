"""One run of a cluster on a bad day, and clients that go on as if nothing were.

Owns the shape of a run: brokers and topics, load, faults, healing, then liveness, a restart of one
broker after the other, a last reading of everything, and the verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from millrace import Consumer
from millrace_simulation.cluster import IN_SYNC_S
from millrace_simulation.world import Rng, World
from tests.sim.clients import Clients, Life
from tests.sim.cluster.cluster import SimCluster
from tests.sim.cluster.invariants import Invariants, observed
from tests.sim.cluster.members import GROUP, CommittedOffsets, Member
from tests.sim.cluster.options import ClusterOptions
from tests.sim.cluster.troubles import ClusterTroubles
from tests.sim.consuming import Consuming
from tests.sim.ledger import Ledger
from tests.sim.lookups import Lookups
from tests.sim.options import ProducerStyle
from tests.sim.producing import Producing
from tests.sim.reading import LIVENESS_S, LastReading
from tests.sim.rot import Rot
from tests.sim.run import Outcome, run
from tests.sim.topics import Topics

_COMPARE_S = 0.5
"""Between two comparisons of the replicas."""


def run_seed(
    seed: int,
    *,
    show: Callable[[str], object] | None = None,
    **others: Any,
) -> Outcome:
    """Runs one seed to its end; `others` are `ClusterOptions` in place of its own."""
    rng = Rng(f"millrace/cluster/{seed}")
    options = replace(ClusterOptions.draw(rng.fork("options")), **others)
    return run(seed, rng, options, lambda world: ClusterScenario(world, options), show=show)


class ClusterScenario:
    """The run of one seed."""

    is_one_broker = False

    def __init__(self, world: World, options: ClusterOptions) -> None:
        self.world = world
        self.options = options
        self.ledger = Ledger()
        self.rot = Rot(world.trace)
        self._rng = world.rng.fork("scenario")
        self._lookups = Lookups(self.ledger, world.now_s, may_be_late=True)
        self._topics = Topics(world, options, self.ledger, self._rng.fork("topics"))
        self._clients = Clients(world, options, self._topics, self.ledger)
        self._committed = CommittedOffsets(self._topics, world.trace)
        self._invariants = Invariants(world.trace)
        self._cluster = SimCluster(world, options, self.rot)
        self._topics.servers.append(self._cluster)

    async def run(self) -> None:
        """Everything, from the first start of the brokers to the verdict."""
        with observed(self._invariants, self.world.trace):
            comparing = self.world.loop.create_task(self._compare())
            keeping = [*self._cluster.keep_up(), comparing]
            await self._live()
            for task in keeping:
                if task.done():
                    task.result()
                task.cancel()
        for sentence in self.ledger.check():
            self.world.trace.violation(sentence)

    async def _live(self) -> None:
        loop, world, options = self.world.loop, self.world, self.options
        await self._cluster.until_up()
        admin = world.process("admin", "admin")
        for number in range(options.topics):
            created = loop.start(admin, self._topics.create(number))
            await world.within("create topics", created, LIVENESS_S)
        load = self._start_load()
        if options.churns:
            load.append(loop.start(admin, self._topics.churn(lambda: self._clients.is_over)))
        await asyncio.gather(
            *(self._troubles(number).run(options.trouble_s) for number in range(options.at_once))
        )
        world.trace.note("heal")
        world.network.heal()
        await self._cluster.heal()
        self._clients.is_over = True
        limit_s = options.delivery_timeout_ms / 1000 + LIVENESS_S
        for task in load:
            await world.within(f"{task.get_name()} after healing", task, limit_s)
        await self._last_word()

    def _troubles(self, number: int) -> ClusterTroubles:
        return ClusterTroubles(
            self.world,
            self.options,
            brokers=list(self._cluster.brokers),
            topics=self._topics,
            clients=self._clients,
            rot=self.rot,
            rng=self._rng.fork(f"trouble {number}"),
        )

    def _start_load(self) -> list[asyncio.Task[None]]:
        keep, clients, options = self._clients.keep, self._clients, self.options

        def producing(style: ProducerStyle) -> Callable[[Life], Coroutine[Any, Any, None]]:
            return lambda life: Producing(clients, life, style).run()

        def consuming(life: Life) -> Coroutine[Any, Any, None]:
            return Consuming(clients, life, self._lookups, self.rot).run()

        def sharing(life: Life) -> Coroutine[Any, Any, None]:
            return Member(clients, life, self._committed).run(options)

        works = [
            *(keep(f"producer{n}", producing(style)) for n, style in enumerate(options.producers)),
            *(keep(f"consumer{n}", consuming) for n in range(options.consumers)),
            *(keep(f"member{n}", sharing) for n in range(options.members)),
        ]
        return [self.world.loop.create_task(work) for work in works]

    async def _compare(self) -> None:
        while True:
            await asyncio.sleep(_COMPARE_S)
            self._check_logs()

    def _check_logs(self) -> None:
        for broker in self._cluster.brokers:
            if broker.node is not None:
                self._invariants.check_logs(broker.name, broker.node)

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
        await world.within("probe", loop.start(process, last.probe()), limit_s)
        for broker in self._cluster.brokers:
            await broker.restart_in_order()
        await self._settle()
        await world.within("last read", loop.start(process, last.read()), limit_s)
        if self.options.members:
            asking = loop.start(process, self._ask_what_is_committed(life))
            await world.within("committed offsets", asking, LIVENESS_S)

    async def _settle(self) -> None:
        """All replicas are in sync and agree, and no broker lacks what was committed."""
        settling = self.world.loop.create_task(self._cluster.until_in_sync())
        await self.world.within("settle", settling, IN_SYNC_S * 2)
        self._check_logs()
        for node in self._cluster.nodes:
            end_offset = node.broker.image.end_offset
            if end_offset < self._invariants.committed_offset:
                self.world.trace.violation(
                    f"metadata up to offset {self._invariants.committed_offset} was committed, "
                    f"and a broker has it up to {end_offset}"
                )

    async def _ask_what_is_committed(self, life: Life) -> None:
        settings = self.options.member()
        async with Consumer(
            self._cluster.address, group=GROUP, rng=life.rng.fork("member"), **settings
        ) as consumer:
            await Member(self._clients, life, self._committed).ask(consumer, *self._topics.wheres)
