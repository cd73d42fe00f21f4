"""`python -m tests.fuzz`: a million inputs for every decoder of broker and client.

With atheris (`pip install "millrace[fuzz]"`) the inputs are found by the code they reach; without
it, or with `--plain`, they are mutations that a seed decides. Says for each target how many inputs
a second it took, the slowest input (the shortest processor time of three tries), and the peak of
memory with what it grew by in the run. Ends with 1 after a find: an exception that is not a typed
error, an input that takes 50 ms or does not end, memory that grows.

The whole of it takes an hour or two of one processor. `--state DIRECTORY` keeps what was done and
the inputs that atheris found; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.fuzz.campaign import Campaign, Tally
from tests.fuzz.catalogue import NAMES


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each target")
    parser.add_argument("--only", default="", help="targets whose names contain this")
    parser.add_argument("--workers", type=int, default=1, help="targets at a time")
    parser.add_argument("--state", type=Path, default=None, help="directory to go on from")
    parser.add_argument("--seed", type=int, default=None, help="default: another one every time")
    parser.add_argument("--plain", action="store_true", help="no atheris, even where it is")
    options = parser.parse_args(arguments)
    names = [name for name in NAMES if options.only in name]
    if not names:
        parser.error(f"no target is named like {options.only!r}; there are {', '.join(NAMES)}")
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    guided = not options.plain and importlib.util.find_spec("atheris") is not None
    with tempfile.TemporaryDirectory() as forgotten:
        directory: Path = options.state or Path(forgotten)
        directory.mkdir(parents=True, exist_ok=True)
        return _run(
            Campaign(directory, seed=seed),
            names,
            inputs=options.inputs,
            guided=guided,
            workers=options.workers,
        )


def _run(campaign: Campaign, names: list[str], *, inputs: int, guided: bool, workers: int) -> int:
    print(f"{len(names)} targets, {'atheris' if guided else 'mutations'}", flush=True)
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    found = False
    for result in campaign.run(names, inputs=inputs, guided=guided, workers=workers):
        tally = tallies[result.share.target]
        tally.add(result)
        print(f"{result.share.target:<30} {tally}", flush=True)
        for find in result.finds:
            found = True
            print(f"FOUND in {result.share.target}, seed {result.seed}: {find}", flush=True)
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    print(f"{f'{len(tallies)} targets':<30} {total}")
    return int(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
