"""`python -m tests.history --histories 10000`: no false alarm, every spoilt history caught.

Prints how many histories were checked and how fast the checker is on one long history.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.history.checker import check
from tests.history.generated import MUTATIONS, valid_history


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    spoilt_count = 0
    for seed in range(options.first_seed, options.first_seed + options.histories):
        history = valid_history(seed)
        report = check(history)
        if not report.is_valid:
            print(f"seed {seed}: a false alarm\n{report}")
            return 1
        for mutation, kinds in MUTATIONS.items():
            spoilt = mutation(history, random.Random(seed))
            if spoilt is not None:
                spoilt_count += 1
                if not check(spoilt).kinds & kinds:
                    print(f"seed {seed}: {mutation.__name__} was not caught")
                    return 1
    print(f"{options.histories} valid histories, {spoilt_count} spoilt ones, all told apart")
    history = valid_history(options.first_seed, steps=300_000)
    started = time.perf_counter()
    check(history)
    duration_s = time.perf_counter() - started
    speed = len(history) / duration_s
    print(f"{len(history)} operations in {duration_s:.2f} s: {speed:,.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
