"""Whole lives of brokers and their clients, each from one seed.

    python -m tests.sim --seeds 1000          many runs, and what they met
    python -m tests.sim --seed 62             one run again, told line by line
    python -m tests.sim.mutants               bugs, planted; each must be found
    python -m tests.sim.mutants --only sync   some of them

The real brokers and the real clients run in one thread, on virtual time, on disks, clocks and a
network that fail as the seed says (`options`, `troubles`). Each broker has a machine of its own: an
address, a disk, and a clock that drifts and jumps; processes are killed and paused. The brokers are
independent, with topics of their own. All that clients did is a history, which `tests.history`
judges. In some runs what was durable is damaged as well (`rot`): then a loss must be told, by an
error or a partition that is offline, and a wrong value or a log that is short without a word is a
violation.

A set of 200 runs or more must meet every situation that `situations` lists; it fails if it never
meets one, as it does for any violation. The same seed is the same run: its digest covers every
message, disk operation and log line, and does not depend on `PYTHONHASHSEED`.
"""

from __future__ import annotations

import argparse
import sys

from tests.sim.campaign import replay, run_many


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, help="run this seed only, and print its trace")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed)
    return run_many(options.first, options.seeds, options.processes)


if __name__ == "__main__":
    sys.exit(main())
