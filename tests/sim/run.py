"""One run from its seed to its outcome, whatever it simulates.

Owns the world of a run: it is made before the first event and taken apart behind the last, so that
nothing of one run is left in the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from millrace_simulation.loop import Stuck
from millrace_simulation.outside import no_collections
from millrace_simulation.world import Rng, World
from tests.sim.ledger import Ledger
from tests.sim.options import Options
from tests.sim.rot import Rot
from tests.sim.situations import noticed

TURNS_MAX = 10_000_000


class Simulated(Protocol):
    """What a run simulates. `run` returns behind the verdict."""

    ledger: Ledger
    rot: Rot
    is_one_broker: bool
    """Whether all that a client is told comes from one broker."""

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to; `violations` is empty when all is well."""

    seed: int
    is_hopeless: bool
    violations: list[str]
    counts: Counter[str]
    digest: str
    virtual_s: float
    sent: int
    acked: int


def run(
    seed: int,
    rng: Rng,
    options: Options,
    simulated: Callable[[World], Simulated],
    *,
    show: Callable[[str], object] | None,
) -> Outcome:
    """Runs to its end what `simulated` makes in a new world."""
    with no_collections():
        return _run(seed, rng, options, simulated, show)


def _run(
    seed: int,
    rng: Rng,
    options: Options,
    simulated: Callable[[World], Simulated],
    show: Callable[[str], object] | None,
) -> Outcome:
    world = World(
        rng,
        latency_max_s=options.latency_max_s,
        blocking_max_s=options.blocking_max_s,
        window_bytes=options.window_bytes,
        segment_bytes=options.network_segment_bytes,
        turns_max=TURNS_MAX,
        skew=options.skew,
        show=show,
    )
    scenario = simulated(world)
    started_s = world.now_s()
    try:
        world.trace.note(f"{options}")
        with noticed(
            world.trace,
            scenario.ledger,
            scenario.rot,
            one_broker=scenario.is_one_broker,
        ):
            world.run(scenario.run())
    except Stuck as error:
        world.trace.violation(f"stuck: {error}")
    finally:
        virtual_s = world.now_s() - started_s
        world.close()
    ledger = scenario.ledger
    return Outcome(
        seed,
        options.is_hopeless,
        world.trace.violations,
        world.trace.counts,
        world.trace.digest,
        virtual_s,
        len(ledger.written),
        ledger.acked_count,
    )
