"""`python -m tests.fuzz --runs 1000000 [--target NAME] [--seed N]`: many bytes to every decoder.

With atheris (`pip install "millrace[fuzz]"`) the inputs are found by coverage: each target runs
in a process of its own, and what it finds is kept where `--corpus` says. Without it, or with
`--plain`, they are mutations that a seed decides. Prints for each target how many inputs it had,
what crashed it, the slowest input and how far the peak of memory grew; ends with 1 after a find.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.driver import GROWTH_BYTES_MAX, run
from tests.fuzz.mutation import mutations
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.typed_lines import TEXT_LINE, typed_lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each target")
    parser.add_argument("--target", help="only targets whose name contains this")
    parser.add_argument("--seed", type=int, default=None, help="default: another one every time")
    parser.add_argument("--plain", action="store_true", help="no atheris, even where it is")
    parser.add_argument("--corpus", type=Path, default=None, help="directory to keep inputs in")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    guided = not options.plain and importlib.util.find_spec("atheris") is not None
    failed = False
    for target in _targets(options.target or ""):
        if guided:
            failed |= _guided(target, options.runs, seed, options.corpus)
        else:
            failed |= _plain(target, options.runs, seed)
    return int(failed)


def _targets(word: str) -> Iterator[Target]:
    """Those whose names contain `word`; all but the last need nothing that runs beside them."""
    yield from (target for target in TARGETS if word in target.name)
    if word in TEXT_LINE:
        with typed_lines() as target:
            yield target


def _plain(target: Target, runs: int, seed: int) -> bool:
    outcome = run(target, mutations(target.seeds, count=runs, seed=seed))
    print(
        f"{target.name:<36} {outcome.inputs:>9} inputs {outcome.seconds:>7.1f} s "
        f"{len(outcome.crashes):>3} crashes, slowest {outcome.slowest_ms:>7.1f} ms, "
        f"{outcome.slow:>4} slow, memory +{outcome.growth_bytes >> 20} MiB, seed {seed}",
        flush=True,
    )
    for data, error in outcome.crashes:
        print(f"  {error!r}\n  {data.hex()}", flush=True)
    return bool(outcome.crashes) or outcome.growth_bytes >= GROWTH_BYTES_MAX


def _guided(target: Target, runs: int, seed: int, corpus: Path | None) -> bool:
    with tempfile.TemporaryDirectory() as forgotten:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.fuzz.guided"),
                *(target.name, str(runs), str(seed), str(corpus or forgotten)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    lines = done.stderr.splitlines()
    last = next((line for line in reversed(lines) if line.startswith(("#", "Done"))), "no figures")
    print(f"{target.name:<36} exit {done.returncode}, {last}", flush=True)
    if done.returncode:
        print("\n".join(f"  {line}" for line in [*done.stdout.splitlines(), *lines][-40:]))
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
