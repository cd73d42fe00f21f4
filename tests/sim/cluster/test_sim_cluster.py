"""Seeds of simulated clusters that every run of the tests goes through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.cluster.scenario import run_seed

SEEDS = (0, 4, 7, 43)
HASHED = (9, 43)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_on_a_bad_day_keeps_its_promises(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.violations == [], f"python -m tests.sim --cluster --seed {seed}"
    assert outcome.acked > 0


def test_a_seed_is_the_same_cluster_whatever_the_hashes_of_strings_are() -> None:
    program = (
        "from tests.sim.cluster.scenario import run_seed\n"
        f"for seed in {HASHED}: print(run_seed(seed).digest)"
    )
    root = str(Path(__file__).parents[3])
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert len(set(digests[0].split())) == len(HASHED)
