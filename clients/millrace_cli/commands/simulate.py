"""`millrace simulate`: your own async code against simulated brokers, seed by seed."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.exits import CommandError, Exit, run_blocking, until_signal
from millrace_cli.json_output import Json, print_json
from millrace_cli.visible_text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millrace_cli.simulated_seeds import Runs
    from millrace_simulation import Outcome

SEEDS_MAX = 10_000_000
_LAYOUT = "\n\t"

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The main function: MODULE:FUNCTION or FILE.py:FUNCTION, `async def main(sim)`.",
    ),
]
Seeds = Annotated[
    str, typer.Option("--seeds", "-s", metavar="SEEDS", help="7, or 1-100, or 1,4,9.")
]
Brokers = Annotated[int, typer.Option("--brokers", "-b", min=1, max=9, help="Simulated brokers.")]
Seconds = Annotated[
    float, typer.Option("--seconds", min=0, help="How long faults go on, in virtual seconds.")
]
Kinds = Annotated[
    str,
    typer.Option(
        "--faults", "-f", metavar="KINDS", help="Kinds of fault, as kill,power; or all, or none."
    ),
]
Every = Annotated[
    float, typer.Option("--every", min=0.01, help="Mean time between two faults, in seconds.")
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Processes.  [default: one for each processor]"),
]


def simulate(
    target: Target,
    seeds: Seeds = "1-20",
    brokers: Brokers = 3,
    seconds: Seconds = 60.0,
    faults: Kinds = "all",
    every: Every = 3.0,
    jobs: Jobs = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print what happens, line by line. Takes one seed.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", "-x", help="Stop at the first seed that fails.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run your own code against simulated brokers that fail, and find the seed that breaks it.

    Brokers, clients and your code run in one thread, on virtual time, on disks, clocks and a
    network that fail as the seed says. The same seed is the same run: each seed that fails is
    printed with the command that runs it again.

    The exit code is 1 if a seed failed.
    """
    from millrace_cli.simulated_seeds import Runs, load
    from millrace_simulation import SimulationConfig

    chosen = _seeds(seeds)
    if trace and len(chosen) != 1:
        raise typer.BadParameter("--trace takes one seed, as --seeds 7")
    try:
        config = SimulationConfig(brokers, seconds, _faults(faults), every)
        load(target)
    except (CommandError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    runs = Runs(target, config)

    def work(check_signals: Callable[[], None]) -> Exit:
        processes = jobs or os.cpu_count() or 1
        with closing(runs.outcomes(chosen, jobs=processes, is_shown=trace)) as outcomes:
            failed = _run(runs, outcomes, check_signals, stops=stop, as_json=as_json)
        return Exit.REFUSED if failed else Exit.OK

    run_blocking(lambda: until_signal(work))


def _run(
    runs: Runs,
    outcomes: Iterator[tuple[Outcome, float]],
    check_signals: Callable[[], None],
    *,
    stops: bool,
    as_json: bool,
) -> int:
    """Prints outcomes that are failures, and a summary; returns how many failed."""
    done = failed = 0
    virtual_s = cpu_s = 0.0
    faults: Counter[str] = Counter()
    for outcome, taken_s in outcomes:
        check_signals()
        done += 1
        virtual_s += outcome.virtual_s
        cpu_s += taken_s
        faults += outcome.faults
        failed += outcome.failure is not None
        if as_json:
            print_json(_row(outcome))
        elif outcome.failure is not None:
            print(f"seed {outcome.seed}: {visible(outcome.failure, keep=_LAYOUT)}")
            print(f"again: {_again(runs, outcome.seed)}", flush=True)
        if stops and failed:
            break
    if not as_json:
        kinds = ", ".join(f"{count} {kind}" for kind, count in faults.most_common())
        print(
            f"{counted(done, 'seed')}, {failed} failed; {counted(faults.total(), 'fault')}"
            f"{f': {kinds}' if kinds else ''}",
            file=sys.stderr,
        )
        print(
            f"{virtual_s:,.0f} virtual seconds, {virtual_s / max(cpu_s, 1e-3):.0f} for each second "
            "of CPU time",
            file=sys.stderr,
        )
    return failed


def _row(outcome: Outcome) -> dict[str, object]:
    return {
        "seed": outcome.seed,
        "failure": outcome.failure,
        "faults": dict(sorted(outcome.faults.items())),
        "virtual_seconds": round(outcome.virtual_s, 3),
        "digest": outcome.digest,
    }


def _again(runs: Runs, seed: int) -> str:
    """The command that runs a seed once more, line by line."""
    from millrace_simulation import SimulationConfig

    words = ["millrace", "simulate", runs.target, "--seeds", str(seed), "--trace"]
    config, default = runs.config, SimulationConfig()
    for flag, value, usual in (
        ("--brokers", str(config.brokers), str(default.brokers)),
        ("--seconds", f"{config.seconds:g}", f"{default.seconds:g}"),
        ("--faults", ",".join(config.faults) or "none", ",".join(default.faults)),
        ("--every", f"{config.every_s:g}", f"{default.every_s:g}"),
    ):
        if value != usual:
            words += [flag, value]
    return shlex.join(words)


def _seeds(text: str) -> list[int]:
    """The seeds that a text names, in its order."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise typer.BadParameter(f"--seeds {text!r} is not as 7, 1-100 or 1,4,9")
        end = int(last) if dash else int(first)
        if end < int(first) or len(found) + end - int(first) >= SEEDS_MAX:
            raise typer.BadParameter(
                f"--seeds {text!r} has to rise, with at most {SEEDS_MAX:,} seeds"
            )
        found += range(int(first), end + 1)
    return found


def _faults(text: str) -> tuple[str, ...]:
    """The kinds that a text names."""
    from millrace_simulation import FAULTS

    if text in ("all", "none"):
        return tuple(FAULTS) if text == "all" else ()
    return tuple(part.strip() for part in text.split(","))
