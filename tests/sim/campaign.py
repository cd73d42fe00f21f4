"""Many runs: their violations, how fast they were, and what they met.

In a module of its own because processes that are spawned cannot import a `__main__`.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter

from millrace_simulation.faults import fault_counts
from tests.sim import scenario
from tests.sim.cluster import scenario as cluster_scenario
from tests.sim.cluster.situations import CLUSTER_SOMETIMES
from tests.sim.run import Outcome
from tests.sim.situations import SOMETIMES, missing

PROGRESS_RUNS = 20
"""Between two lines about how far a long set of runs is."""


def replay(seed: int, *, is_cluster: bool) -> int:
    """Runs one seed with its whole story."""
    run_seed = cluster_scenario.run_seed if is_cluster else scenario.run_seed
    outcome = run_seed(seed, show=print)
    print(f"seed={seed} digest={outcome.digest} sent={outcome.sent} acked={outcome.acked}")
    for violation in outcome.violations:
        print(f"seed={seed} {violation}")
    return 1 if outcome.violations else 0


def run_many(first: int, count: int, processes: int, *, is_cluster: bool) -> int:
    """Runs seeds `first` to `first + count`, exclusive."""
    started_s = time.monotonic()
    counts: Counter[str] = Counter()
    virtual_s = cpu_s = 0.0
    sent = acked = failed = hopeless = 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=100) as pool:
        work = _timed_cluster if is_cluster else _timed
        outcomes = pool.imap_unordered(work, range(first, first + count))
        for done, (outcome, taken_s) in enumerate(outcomes, 1):
            virtual_s += outcome.virtual_s
            cpu_s += taken_s
            sent += outcome.sent
            acked += outcome.acked
            counts += outcome.counts
            failed += bool(outcome.violations)
            hopeless += outcome.is_hopeless
            for violation in outcome.violations:
                print(f"seed={outcome.seed} {violation}", flush=True)
            if done % PROGRESS_RUNS == 0 and done < count:
                print(
                    f"{done} of {count} runs, {failed} with violations; "
                    f"{virtual_s:.0f} virtual s, {virtual_s / cpu_s:.1f} per CPU s",
                    flush=True,
                )
    listed = CLUSTER_SOMETIMES if is_cluster else SOMETIMES
    for what in sorted({*listed, *counts}):
        print(f"{counts[what]:10} {what}")
    never = missing(listed, counts, count)
    for what in never:
        print(f"never in {count} runs: {what}")
    faults = sum(fault_counts(counts).values())
    print(
        f"{count} runs, {hopeless} of them hopeless, {failed} with violations; "
        f"{faults / count:.1f} faults a run; {sent} records sent, {acked} acked; "
        f"{virtual_s:.0f} virtual s, {virtual_s / cpu_s:.1f} per CPU s; "
        f"{time.monotonic() - started_s:.0f} s"
    )
    return 1 if failed or never else 0


def _timed(seed: int) -> tuple[Outcome, float]:
    started_s = time.process_time()
    outcome = scenario.run_seed(seed)
    return outcome, time.process_time() - started_s


def _timed_cluster(seed: int) -> tuple[Outcome, float]:
    started_s = time.process_time()
    outcome = cluster_scenario.run_seed(seed)
    return outcome, time.process_time() - started_s
