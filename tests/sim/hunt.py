"""The hunt for a planted bug: seeds are run with it until one finds it.

Owns how a bug is planted and what counts as found. A patch that is never called is no bug: the code
has changed, and the mutant must follow it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.sim.run import Outcome

Patch = Callable[[Any, str, Any], None]
Mutant = Callable[[Patch], None]
"""A function that breaks the broker or the client through the patch it is given."""
RunSeed = Callable[..., Outcome]


@dataclass(frozen=True, slots=True)
class Hunt:
    """What became of a mutant: the first seed that finds it, and how it shows."""

    mutant: Mutant
    seed: int | None
    violation: str
    uncalled: tuple[str, ...]
    """Patches that were never called."""

    @property
    def is_success(self) -> bool:
        return self.seed is not None and not self.uncalled

    def __str__(self) -> str:
        name = self.mutant.__name__.replace("_", " ")
        if self.uncalled:
            return f"NOT A BUG {name}: never called: {', '.join(self.uncalled)}"
        if self.seed is None:
            return f"ESCAPED {name}"
        return f"seed {self.seed:3} {name}: {self.violation[:110]}"


def hunt(mutant: Mutant, run_seed: RunSeed, seeds: range, conditions: Mapping[str, object]) -> Hunt:
    """Runs `seeds` with a mutant until one finds it; `conditions` go to `run_seed` by name."""
    calls: dict[str, int] = {}
    with ExitStack() as stack:

        def counted(what: str, value: Any) -> Any:
            if isinstance(value, SimpleNamespace):
                parts = {
                    name: counted(f"{what}.{name}", part) for name, part in vars(value).items()
                }
                return SimpleNamespace(**parts)
            calls[what] = 0

            def call(*args: Any, **options: Any) -> Any:
                calls[what] += 1
                return value(*args, **options)

            return call

        def patch(owner: Any, name: str, value: Any) -> None:
            is_property = isinstance(value, property)
            planted = value if is_property else counted(f"{owner.__name__}.{name}", value)
            stack.enter_context(mock.patch.object(owner, name, planted))

        mutant(patch)
        found, violation = None, ""
        for seed in seeds:
            outcome = run_seed(seed, **conditions)
            if outcome.violations:
                found, violation = seed, outcome.violations[0]
                break
    return Hunt(mutant, found, violation, tuple(what for what, count in calls.items() if not count))


def hunt_all(
    mutants: Sequence[Mutant],
    run_seed: RunSeed,
    conditions_of: Mapping[Mutant, Mapping[str, object]],
    description: str,
) -> int:
    """The program: hunts the mutants that the arguments name; returns its exit code.

    `conditions_of` has what a mutant needs in order to be found.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds each may take")
    parser.add_argument("--only", default="", help="mutants with this in their names")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    started_s = time.monotonic()
    chosen = [mutant for mutant in mutants if options.only in mutant.__name__]
    caught = 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.processes) as pool:
        hunts = [
            pool.apply_async(
                hunt, (mutant, run_seed, range(options.seeds), conditions_of.get(mutant, {}))
            )
            for mutant in chosen
        ]
        for hunted in (each.get() for each in hunts):
            caught += hunted.is_success
            print(hunted, flush=True)
    print(f"{caught} of {len(chosen)}, {time.monotonic() - started_s:.0f} s")
    return 0 if caught == len(chosen) else 1
