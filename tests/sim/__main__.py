"""Whole lives of brokers and their clients, each from one seed.

    python -m tests.sim --seeds 1000              many runs, and what they met
    python -m tests.sim --seed 62                 one run again, told line by line
    python -m tests.sim.mutants                   bugs, planted; each must be found
    python -m tests.sim.mutants --only sync       some of them
    python -m tests.sim --cluster --seeds 1000    many runs of a cluster of 1, 3 or 5 brokers
    python -m tests.sim --cluster --seeds 50000   what a release takes: a day on one core
    python -m tests.sim --cluster --seed 62       one of them again
    python -m tests.sim.cluster.mutants           bugs of clusters, planted

The real brokers and the real clients run in one thread, on virtual time, on disks, clocks and a
network that fail as the seed says (`options`, `troubles`). Each broker has a machine of its own: an
address, a disk, and a clock that drifts and jumps; processes are killed and paused. All that
clients did is a history, which `tests.history` judges. In some runs what was durable is damaged as
well (`rot`): then a loss must be told, by an error or a partition that is offline, and a wrong
value or a log that is short without a word is a violation.

Without `--cluster` the brokers are independent, with topics of their own. With it they are one
cluster that loses power, brokers and links while its topics are replicated; it must also obey
`cluster.invariants`.

A set of 200 runs or more must meet every situation that `situations` lists, or
`cluster.situations`; it fails if it never meets one, as it does for any violation. The same seed is
the same run: its digest covers every message, disk operation and log line, and does not depend on
`PYTHONHASHSEED`.
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
    parser.add_argument("--cluster", action="store_true", help="one cluster of 1, 3 or 5 brokers")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed, is_cluster=options.cluster)
    return run_many(options.first, options.seeds, options.processes, is_cluster=options.cluster)


if __name__ == "__main__":
    sys.exit(main())
