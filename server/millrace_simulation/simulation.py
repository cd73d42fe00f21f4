"""A user's own code against simulated brokers, under one seed.

Owns the shape of a run: brokers that come up, the user's main function, faults until their time is
over or the function says so, and the verdict.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from millrace_server.config import BrokerConfig
from millrace_simulation.broker import SimulatedBroker
from millrace_simulation.clock import NO_SKEW, Skew
from millrace_simulation.cluster import SimulatedCluster
from millrace_simulation.faults import Faults
from millrace_simulation.log_lines import log_lines
from millrace_simulation.loop import Stuck
from millrace_simulation.network import Link
from millrace_simulation.outside import no_collections
from millrace_simulation.services import Service, Services
from millrace_simulation.world import Rng, World

CLIENT_PORT = 9092
BROKER_PORT = 9093
BROKERS_MAX = 9
SECONDS = 60.0
"""How long faults last, unless the caller says it."""
LIMIT_S = 600.0
"""How long a run may go on when its faults are over."""
EVERY_S = 3.0
"""The mean time between two faults."""
TURNS_MAX = 10_000_000
FAULTS: Mapping[str, str] = {
    "kill": "kill -9 of a broker",
    "kill_all": "kill -9 of all brokers",
    "power": "a broker's machine loses its power, and what was not synced",
    "power_majority": "a majority of the brokers loses its power at the same moment",
    "power_all": "all brokers lose their power at the same moment",
    "restart": "a broker is restarted in order",
    "pause": "a broker's process is stopped for a while (SIGSTOP)",
    "clock": "a wall clock jumps",
    "reset": "connections are reset",
    "isolate": "a broker is cut off from the others, both ways or one way",
    "cut": "links of a broker are cut, both ways or one way",
    "link": "links of a broker are slow, or lose segments",
    "slow": "the whole network is slow",
    "busy": "the disks are busy",
    "full": "a broker's disk is full",
    "write_error": "a write fails",
    "sync_error": "a sync fails",
    "read_error": "a read fails",
    "service_kill": "kill -9 of a service, which is started again",
    "service_pause": "a service's process is stopped for a while",
}
"""The kinds of fault, and what each does."""

Main = Callable[["Simulation"], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to. `failure` is None when all is well."""

    seed: int
    failure: str | None
    """What went wrong, with the traceback where the user's code raised."""
    faults: Counter[str]
    """How many of each kind there were."""
    digest: str
    """The same for the same run: of every message, disk operation and log line."""
    virtual_s: float


class SimulationFailed(AssertionError):
    """A run whose main function, or a service, raised, or that did not come to its end."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"seed {outcome.seed}: {outcome.failure}")
        self.outcome = outcome


def simulate(
    main: Main,
    *,
    seed: int = 0,
    brokers: int = 3,
    seconds: float = SECONDS,
    faults: Sequence[str] = tuple(FAULTS),
    every_s: float = EVERY_S,
    settings: Mapping[str, Any] | None = None,
    show: Callable[[str], object] | None = None,
) -> Outcome:
    """Runs `main` against a new simulated cluster; the same seed is the same run.

    `brokers` is 1 to 9. Faults of the kinds in `faults` come every `every_s` s in the mean, from
    the start of the first service for `seconds` s, or until `Simulation.heal`. `settings` are
    those of the brokers, by their names in Python. `show` gets each line of the trace. All times
    are virtual.

    Raises `SimulationFailed`; `ValueError` for arguments that are wrong.
    """
    outcome = outcome_of(
        main,
        seed=seed,
        brokers=brokers,
        seconds=seconds,
        faults=faults,
        every_s=every_s,
        settings=settings,
        show=show,
    )
    if outcome.failure is not None:
        raise SimulationFailed(outcome)
    return outcome


def outcome_of(
    main: Main,
    *,
    seed: int,
    brokers: int = 3,
    seconds: float = SECONDS,
    faults: Sequence[str] = tuple(FAULTS),
    every_s: float = EVERY_S,
    settings: Mapping[str, Any] | None = None,
    show: Callable[[str], object] | None = None,
) -> Outcome:
    """As `simulate`, but a run that fails is an outcome as well. Raises `ValueError`."""
    if not 1 <= brokers <= BROKERS_MAX:
        raise ValueError(f"brokers is {brokers}; it is 1 to {BROKERS_MAX}")
    if seconds < 0 or every_s <= 0:
        raise ValueError("seconds is at least 0, and every_s is above 0")
    unknown = sorted(set(faults) - FAULTS.keys())
    if unknown:
        raise ValueError(f"no fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
    names = {field.name for field in fields(BrokerConfig)}
    for name in settings or {}:
        if name not in names or name in _OWN_SETTINGS:
            raise ValueError(f"a simulated broker takes no setting {name!r}")
    with no_collections():
        return _run(main, seed, brokers, seconds, faults, every_s, settings or {}, show)


def _run(
    main: Main,
    seed: int,
    brokers: int,
    seconds: float,
    faults: Sequence[str],
    every_s: float,
    settings: Mapping[str, Any],
    show: Callable[[str], object] | None,
) -> Outcome:
    rng = Rng(f"simulate/{seed}")
    drawn = rng.fork("options")
    latency_max_s = drawn.choice((0.0002, 0.002, 0.02))
    world = World(
        rng,
        latency_max_s=latency_max_s,
        blocking_max_s=drawn.choice((0.0005, 0.005, 0.02)),
        # A window that is too small for the latency makes answers slower than any timeout.
        window_bytes=65536 if latency_max_s > 0.01 else drawn.choice((8192, 65536)),
        segment_bytes=drawn.choice((1448, 65536)),
        turns_max=TURNS_MAX,
        skew=drawn.choice((NO_SKEW, Skew(50, 2e-4), Skew(10_000, 0.02))),
        show=show,
    )
    simulation = Simulation(
        world,
        seed,
        [_config(number, brokers, settings) for number in range(1, brokers + 1)],
        seconds=seconds,
        faults=faults,
        every_s=every_s,
    )
    started_s = world.now_s()
    try:
        with log_lines(world.trace):
            world.run(simulation._live(main))
    except Stuck as error:
        world.trace.violation(f"nothing goes on: {error}")
    finally:
        virtual_s = world.now_s() - started_s
        world.close()
    kinds = Counter(
        {
            what.removeprefix("trouble: "): count
            for what, count in world.trace.counts.items()
            if what.startswith("trouble: ")
        }
    )
    failure = "\n".join(world.trace.violations) or None
    return Outcome(seed, failure, kinds, world.trace.digest, virtual_s)


_OWN_SETTINGS = frozenset({"listen", "insecure_listen", "node_id", "quorum", "data", "advertise"})


def _config(number: int, brokers: int, settings: Mapping[str, Any]) -> BrokerConfig:
    quorum = ",".join(f"{each}@{_host(each)}:{BROKER_PORT}" for each in range(1, brokers + 1))
    defaults = {
        # A broker that finds no quorum gives up, and is started again.
        "quorum_wait_ms": 5_000,
        # Each partition of it costs a run what one of the user's does.
        "offsets_topic_partitions": 4,
    }
    return BrokerConfig(
        listen=f"{_host(number)}:{CLIENT_PORT}",
        insecure_listen=True,
        node_id=number,
        quorum=quorum,
        **{**defaults, **settings},
    )


def _host(number: int) -> str:
    return f"10.0.0.{number}"


class Simulation:
    """What a main function is given: the cluster, faults on purpose, and services.

    Brokers have the ids 1 to n, as in `millrace_server.testing.Cluster`.
    """

    def __init__(
        self,
        world: World,
        seed: int,
        configs: Sequence[BrokerConfig],
        *,
        seconds: float,
        faults: Sequence[str],
        every_s: float,
    ) -> None:
        self.seed = seed
        self.rng = world.rng.fork("user")
        """For choices of the user's: the same in each run of a seed."""
        self._world = world
        brokers = [SimulatedBroker(world, number, c) for number, c in enumerate(configs, 1)]
        self._cluster = SimulatedCluster(world, brokers)
        self._services = Services(world, on_error=self._failed)
        self._faults = _UserFaults(
            world,
            faults,
            every_s=every_s,
            brokers=brokers,
            rng=world.rng.fork("faults"),
            services=self._services,
        )
        self._seconds = seconds
        self._until_s = 0.0
        self._faulting: asyncio.Task[None] | None = None
        self._failure: asyncio.Future[None] = world.loop.create_future()
        self._begun_s = 0.0

    # What the user's code has

    @property
    def servers(self) -> str:
        """The addresses of the brokers, as clients take them."""
        return self._cluster.address

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers."""
        return list(range(1, len(self._cluster.brokers) + 1))

    @property
    def now_s(self) -> float:
        """Seconds since the main function began, by no machine's clock."""
        return self._world.now_s() - self._begun_s

    def note(self, line: str) -> None:
        """Adds a line to the trace."""
        self._world.trace.note(line)

    def service(
        self,
        name: str,
        main: Callable[..., Coroutine[Any, Any, None]],
        *args: Any,
        restart_on: tuple[type[Exception], ...] = (),
    ) -> Service:
        """Starts `main(*args)` in a process of its own, on a machine of its own.

        When it is killed it is started again, and so it is after an exception of `restart_on`; any
        other exception fails the run. With the first service the faults begin.
        """
        service = self._services.start(name, lambda: main(*args), restart_on=restart_on)
        self.begin_faults()
        return service

    def begin_faults(self) -> None:
        """Begins the faults of the seed, if that was not done."""
        if self._faulting is None:
            self._until_s = self._world.now_s() + self._seconds
            self._faulting = self._world.start_task(self._faults.run(self._seconds))

    async def faults_over(self) -> None:
        """Waits until the time for faults is over, then heals."""
        self.begin_faults()
        assert self._faulting is not None
        await asyncio.wait([self._faulting])
        await self.heal()

    async def heal(self) -> None:
        """Ends the faults of the seed and those on purpose; returns when every broker is up, and
        every replica in sync."""
        if self._faulting is not None:
            self._faulting.cancel()
            await asyncio.wait([self._faulting])
        self._world.trace.note("heal")
        self._world.network.heal()
        for broker in self._cluster.brokers:
            self._resume(broker)
        await self._cluster.heal()
        await self._cluster.until_in_sync()

    # Faults on purpose

    def kill(self, *ids: int, down_s: float = 0.5) -> None:
        """kill -9 of brokers, by default of all; they start again after so long."""
        for broker in self._chosen(ids):
            broker.kill(pause_s=down_s)

    def cut_power(self, *ids: int, down_s: float = 0.5) -> None:
        """Machines of brokers, by default all, lose their power and what was not synced."""
        for broker in self._chosen(ids):
            broker.cut_power(pause_s=down_s)

    async def restart(self, broker_id: int) -> None:
        """Stops a broker in order; returns when it is up again."""
        await self._broker(broker_id).restart_in_order()

    async def pause(self, broker_id: int, seconds: float) -> None:
        """Stops a broker's process for so long (SIGSTOP, SIGCONT)."""
        await self._broker(broker_id).pause(seconds, is_killed=False)

    def partition(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Cuts the link between two brokers; with `one_way` only from `one` to `other`."""
        self._disturb(one, other, Link(is_cut=True), one_way=one_way)

    def isolate(self, broker_id: int) -> None:
        """Cuts a broker off from the others; clients reach it."""
        for other in self.brokers:
            if other != broker_id:
                self.partition(broker_id, other)

    def slow(self, one: int, other: int, delay_s: float, *, one_way: bool = False) -> None:
        """Delays what brokers send to each other, by so much each way."""
        self._disturb(one, other, Link(delay_s=delay_s), one_way=one_way)

    def skew_clock(self, broker_id: int, seconds: float) -> None:
        """Has a broker's wall clock jump to so far from where it would be."""
        self._broker(broker_id).machine.clock.step(round(seconds * 1000))

    def fill_disk(self, broker_id: int, *, room_bytes: int = 0) -> None:
        """Leaves a broker's disk so much room."""
        self._broker(broker_id).machine.room_bytes = room_bytes

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The leader by the newest metadata that a broker has; None while there is none."""
        images = [node.broker.image for node in self._cluster.nodes]
        newest = max(images, key=lambda image: image.end_offset, default=None)
        known = None if newest is None else newest.topics.get(topic)
        leader = -1 if known is None else known.partitions[partition].leader
        return leader if leader > 0 else None

    def _chosen(self, ids: tuple[int, ...]) -> list[SimulatedBroker]:
        return [self._broker(each) for each in ids or self.brokers]

    def _broker(self, broker_id: int) -> SimulatedBroker:
        if broker_id not in self.brokers:
            raise ValueError(f"no broker {broker_id}; there are 1 to {len(self.brokers)}")
        return self._cluster.brokers[broker_id - 1]

    def _disturb(self, one: int, other: int, link: Link, *, one_way: bool) -> None:
        source, target = self._broker(one).name, self._broker(other).name
        self._world.network.disturb(source, target, link)
        if not one_way:
            self._world.network.disturb(target, source, link)

    def _resume(self, broker: SimulatedBroker) -> None:
        if broker.machine.process is not None:
            self._world.loop.resume(broker.machine.process)

    # The run

    async def _live(self, main: Main) -> None:
        """Everything, to the end of the main function or the first failure."""
        world = self._world
        keeping = self._cluster.keep_up()
        await self._cluster.until_up()
        await self._cluster.until_in_sync()
        self._begun_s = world.now_s()
        process = world.process("main", "main")
        task = world.loop.start(process, main(self))
        limit_s = self._seconds + LIMIT_S
        done, _ = await asyncio.wait(
            [task, self._failure], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            world.trace.violation(f"main is not done after {limit_s:g} virtual seconds")
        elif task in done:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                self._failed("main", error)
        for each in keeping:
            each.cancel()

    def _failed(self, name: str, error: BaseException) -> None:
        shown = "".join(traceback.format_exception(error)).rstrip()
        self._world.trace.violation(f"{name} raised\n{shown}")
        if not self._failure.done():
            self._failure.set_result(None)


class _UserFaults(Faults[SimulatedBroker]):
    """The faults of brokers, and those of services."""

    def __init__(self, *args: Any, services: Services, **options: Any) -> None:
        super().__init__(*args, **options)
        self._services = services

    async def _service_kill(self, rng: Rng) -> None:
        service = self._services.any(rng)
        if service is not None:
            service.kill()

    async def _service_pause(self, rng: Rng) -> None:
        service = self._services.any(rng)
        if service is not None:
            await service.pause(rng.choice((0.1, 1, 10)) * rng.random())
