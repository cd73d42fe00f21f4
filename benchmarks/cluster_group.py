"""Three brokers on one machine: what fails over, what it costs, and how far it reaches."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import cluster_failover, cluster_partitions, cluster_throughput
from benchmarks.results import Row
from benchmarks.session import Session

GROUP = cluster_failover.GROUP


def run(session: Session) -> Iterator[Row]:
    """The rows of all parts."""
    yield from cluster_failover.run(session)
    yield from cluster_throughput.run(session)
    yield from cluster_partitions.run(session)
