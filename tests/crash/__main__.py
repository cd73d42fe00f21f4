"""`python -m tests.crash --rounds 100`: kill -9 under load, as often as you like."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.kill_rounds import run_rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        outcome = asyncio.run(
            run_rounds(
                Path(directory),
                rounds=options.rounds,
                seed=options.seed,
                durability=options.durability,
            )
        )
    print(
        f"{outcome.rounds} rounds in {time.monotonic() - started:.0f} s, {outcome.sent} records, "
        f"{outcome.polled} of them read meanwhile: {outcome.report}"
    )
    return 0 if outcome.report.is_valid else 1


if __name__ == "__main__":
    sys.exit(main())
