"""One run of one target in a process of its own: `python -m tests.fuzz` starts these.

`python -m tests.fuzz.worker NAME INPUTS SEED [CORPUS]` gives the target so many inputs and prints
what came of it as one line of JSON. With CORPUS atheris finds the inputs, from those in that
directory, and keeps the good ones there; without, they are mutations that SEED decides.

The process is the bound on what a find can do: it may hold two gibibytes more than at its start,
and an input that does not end is interrupted.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.driver import Outcome

MEMORY_BYTES_MAX = 2 << 30
HANG_S = 5
"""An input that runs this long is interrupted, and is a find like an exception."""
STUCK_S = 60
"""Code in C is not interrupted: the process ends and says on stderr where it was."""


class Endless(Exception):
    """An input was still running after `HANG_S` or more."""


def main(name: str, inputs: int, seed: int, corpus: str | None = None) -> None:
    if corpus is not None:
        # Before anything is imported that it shall measure.
        from tests.fuzz.guided import run_guided

        run_guided(name, inputs, seed, Path(corpus), say=_say)
        return
    from tests.fuzz.catalogue import opened
    from tests.fuzz.driver import Gauge
    from tests.fuzz.mutation import mutations

    with opened(name) as target:
        gauge = Gauge(target)
        _bound_memory()
        with _watched(gauge.outcome):
            made = mutations(
                target.seeds,
                count=inputs - len(target.seeds),
                seed=seed,
                bytes_max=target.bytes_max,
            )
            for data in made:
                gauge.run(data)
                if gauge.outcome.has_ended:
                    break
        outcome = gauge.read()
    _say(outcome)


def _say(outcome: Outcome) -> None:
    print(
        json.dumps(
            {
                "inputs": outcome.inputs,
                "seconds": outcome.seconds,
                "slowest_ms": outcome.slowest_ms,
                "peak_bytes": outcome.peak_bytes,
                "growth_bytes": outcome.growth_bytes,
                "crashes": [
                    [data.hex(), "".join(format_exception(error))]
                    for data, error in outcome.crashes
                ],
                "hangs": [data.hex() for data in outcome.hangs],
            }
        ),
        flush=True,
    )


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextmanager
def _watched(outcome: Outcome) -> Iterator[None]:
    """Raises `Endless` in the input that is running at two ticks in a row."""
    seen = -1

    def tick(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        if outcome.inputs == seen:
            raise Endless(f"still running after {HANG_S} s")
        seen = outcome.inputs
        faulthandler.dump_traceback_later(STUCK_S, exit=True)

    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, HANG_S, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
