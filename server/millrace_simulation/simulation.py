"""A user's own code against simulated brokers, under one seed.

Owns the shape of a run: brokers that come up, the user's main function, faults until their time is
over or the function says so, and the verdict.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict, Unpack

from millrace_server.config import BrokerConfig
from millrace_simulation.broker import SimulatedBroker
from millrace_simulation.clock import NO_SKEW, Skew
from millrace_simulation.cluster import SimulatedCluster
from millrace_simulation.faults import Faults, fault_counts
from millrace_simulation.log_lines import log_lines
from millrace_simulation.loop import Stuck
from millrace_simulation.network import Link
from millrace_simulation.outside import no_collections
from millrace_simulation.services import Service, Services
from millrace_simulation.world import Rng, World

CLIENT_PORT = 9092
BROKER_PORT = 9093
BROKERS_MAX = 9
LIMIT_S = 600.0
"""How long a run may go on when its faults are over."""
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

_SETTINGS: Mapping[str, Any] = {
    # A broker that finds no quorum gives up, and is started again.
    "quorum_wait_ms": 5_000,
    # Each partition of it costs a run as much as one of the user's.
    "offsets_topic_partitions": 4,
}
_OWN_SETTINGS = frozenset({"listen", "insecure_listen", "node_id", "quorum", "data", "advertise"})

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


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """What a run is like besides its seed. All times are virtual. Raises `ValueError`."""

    brokers: int = 3
    """1 to 9."""
    seconds: float = 60.0
    """How long faults come."""
    faults: Sequence[str] = tuple(FAULTS)
    """Their kinds."""
    every_s: float = 3.0
    """The mean time between two of them."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the brokers, by their names in Python."""

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= BROKERS_MAX:
            raise ValueError(f"brokers is {self.brokers}; it is 1 to {BROKERS_MAX}")
        if self.seconds < 0 or self.every_s <= 0:
            raise ValueError("seconds is at least 0, and every_s is above 0")
        unknown = sorted(set(self.faults) - FAULTS.keys())
        if unknown:
            raise ValueError(f"no fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
        names = {each.name for each in fields(BrokerConfig)} - _OWN_SETTINGS
        for name in self.settings:
            if name not in names:
                raise ValueError(f"a simulated broker takes no setting {name!r}")

    def run(self, main: Main, *, seed: int, show: Callable[[str], object] | None = None) -> Outcome:
        """Runs `main` against a new cluster. `show` gets each line of the trace."""
        with no_collections():
            return _run(main, seed, self, show)

    def broker(self, number: int) -> BrokerConfig:
        """The configuration of one broker."""
        ids = range(1, self.brokers + 1)
        return BrokerConfig(
            listen=f"{_host(number)}:{CLIENT_PORT}",
            insecure_listen=True,
            node_id=number,
            quorum=",".join(f"{each}@{_host(each)}:{BROKER_PORT}" for each in ids),
            **{**_SETTINGS, **self.settings},
        )


class SimulationOptions(TypedDict, total=False):
    """Keyword arguments of `simulate`; the meanings and defaults are `SimulationConfig`'s."""

    brokers: int
    seconds: float
    faults: Sequence[str]
    every_s: float
    settings: Mapping[str, Any]


def simulate(
    main: Main,
    *,
    seed: int = 0,
    show: Callable[[str], object] | None = None,
    **options: Unpack[SimulationOptions],
) -> Outcome:
    """Runs `main` against a new simulated cluster; the same seed is the same run.

    `options` are those of `SimulationConfig`. Faults come from the start of the first service
    on, until their time is over or `Simulation.heal`. `show` gets each line of the trace.

    Raises `SimulationFailed`, and `ValueError` for options that are wrong.
    """
    outcome = SimulationConfig(**options).run(main, seed=seed, show=show)
    if outcome.failure is not None:
        raise SimulationFailed(outcome)
    return outcome


def _host(number: int) -> str:
    return f"10.0.0.{number}"


def _run(
    main: Main, seed: int, config: SimulationConfig, show: Callable[[str], object] | None
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
    simulation = Simulation(world, seed, config)
    started_s = world.now_s()
    try:
        with log_lines(world.trace):
            world.run(simulation._live(main))
    except Stuck as error:
        world.trace.violation(f"nothing goes on: {error}")
    finally:
        virtual_s = world.now_s() - started_s
        world.close()
    failure = "\n".join(world.trace.violations) or None
    return Outcome(seed, failure, fault_counts(world.trace.counts), world.trace.digest, virtual_s)


class Simulation:
    """What a main function is given: the cluster, faults on purpose, and services.

    Brokers have the ids 1 to n, as in `millrace_server.testing.Cluster`.
    """

    def __init__(self, world: World, seed: int, config: SimulationConfig) -> None:
        self.seed = seed
        self.rng = world.rng.fork("user")
        """For choices of the user's: the same in each run of a seed."""
        self._world = world
        self._seconds = config.seconds
        ids = range(1, config.brokers + 1)
        brokers = [SimulatedBroker(world, each, config.broker(each)) for each in ids]
        self._cluster = SimulatedCluster(world, brokers)
        self._services = Services(world, on_error=self._failed)
        self._faults = _UserFaults(
            world,
            config.faults,
            every_s=config.every_s,
            brokers=brokers,
            rng=world.rng.fork("faults"),
            services=self._services,
        )
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
            self._faulting = self._world.start_task(self._faults.run(self._seconds))

    async def faults_over(self) -> None:
        """Waits until the time for faults is over, then heals."""
        self.begin_faults()
        assert self._faulting is not None
        await asyncio.wait([self._faulting])
        await self.heal()

    async def heal(self) -> None:
        """Ends the faults of the seed and those on purpose; returns when every broker is up, and
        every replica in sync. What is paused goes on."""
        if self._faulting is not None:
            self._faulting.cancel()
            await asyncio.wait([self._faulting])
        self._world.trace.note("heal")
        self._world.network.heal()
        for process in self._world.processes:
            self._world.loop.resume(process)
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
