"""What is measured: one module for each workload, in the order of the page.

A workload is a function that takes an `Arena` and yields rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.peers.arena import Arena
from benchmarks.peers.rows import Row
from benchmarks.peers.workloads import (
    cold_reads,
    consume,
    disk,
    fan_out,
    groups,
    latency,
    lifecycle,
    produce,
    spark,
)

WORKLOADS: dict[str, tuple[str, Callable[[Arena], Iterator[Row]]]] = {
    module.NAME: (module.HEADING, module.run)
    for module in (
        produce,
        consume,
        latency,
        fan_out,
        cold_reads,
        disk,
        lifecycle,
        groups,
        spark,
    )
}
HEADINGS = {name: heading for name, (heading, _) in WORKLOADS.items()}
