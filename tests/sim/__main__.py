"""`python -m tests.sim --seeds 1000`: many runs; `--seed N`: one again, told line by line."""

from __future__ import annotations

import argparse
import sys

from tests.sim.campaign import replay, run_many


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
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
