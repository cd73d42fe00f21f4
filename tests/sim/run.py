"""One run from its seed to its outcome, whatever it simulates.

Owns the world of a run: it is made before the first event and taken apart behind the last, so that
nothing of one run is left in the next.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tests.sim.host import Rng, World
from tests.sim.ledger import Ledger
from tests.sim.loop import Stuck
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
    # Finalizers would run when the collector happens to, and not at the same place in each run.
    gc.disable()
    try:
        return _run(seed, rng, options, simulated, show)
    finally:
        with _finalizers_ignored():
            # All that the run has left is young: nothing was collected since it began.
            gc.collect(0)
        gc.enable()


@contextmanager
def _finalizers_ignored() -> Iterator[None]:
    """Coroutines of processes that were killed are collected, and what they complain of is lost."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


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
