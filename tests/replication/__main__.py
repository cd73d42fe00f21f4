"""Lives of replicated partitions, each from one seed, on virtual time.

python -m tests.replication --seeds 50000 [--first N]     many lives
python -m tests.replication --seeds 1 --first N           one life again
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.replication.invariants import Violation
from tests.replication.scenario import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    options = parser.parse_args()
    met: Counter[str] = Counter()
    violations = 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            met += run_seed(seed)
        except Violation as error:
            violations += 1
            print(error)
    for situation, count in sorted(met.items()):
        print(f"{count:10} {situation}")
    print(f"{options.seeds} seeds, {violations} with violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
