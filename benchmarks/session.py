"""One run of the harness: how much work a row does, where its data lies, what it says meanwhile.

Owns the four scales. `FULL` is what the results file is made with; `QUICK` shows a trend in a few
minutes; `PAIR` is one of many short runs that compare two checkouts; `TINY` proves that the harness
works and measures nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.checkout import Checkout, installed
from benchmarks.samples import is_millrace

MIB = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done in a round; sizes in bytes."""

    rounds: int
    fetch_bytes: int
    produce_bytes: int
    synced_bytes: int
    requests: int
    paced_records: int
    """Records of a round that measures latency, at 1 000 a second."""
    records: int
    log_records: int
    """Records of each partition that is consumed; the peers' broker keeps 5 MiB of each."""
    partitions: int
    starts: int
    idle_s: float
    connections: int
    restart_bytes: int
    """Of all partitions together, when the broker is killed."""
    restart_partitions: int
    restart_rounds: int
    groups: int
    """Of three members each, that heartbeat beside a producer."""
    group_members: int
    """Of the one group that one more joins, and that shares `group_partitions`."""
    group_partitions: int
    commits: int
    offset_records: int
    """In the offsets topic, when the broker is killed."""
    spark_rounds: int
    spark_warm_ups: int
    """Rounds that do not count, for the JVM's compiler."""
    spark_rows: Mapping[int, int]
    """How many rows, by the bytes of their values."""
    micro_batches: int
    sql_rows: int
    """Flights that a query groups."""
    growth_partitions: int
    """Of a cluster that is metadata alone."""
    kills: int
    """Of leaders of a cluster, beside an application."""
    rolling_restarts: int
    cluster_topics: int
    """Of three partitions and three replicas each."""
    alone_partitions: int
    """Of one broker."""
    missed_bytes: int
    """That a follower has to catch up with."""


# Many short rounds rather than a few long ones: a neighbour's burst then spoils a few ratios, which
# the median leaves out.
FULL = Scale(
    rounds=11,
    fetch_bytes=256 * MIB,
    produce_bytes=128 * MIB,
    synced_bytes=32 * MIB,
    requests=10_000,
    paced_records=5_000,
    records=700_000,
    log_records=44_000,
    partitions=16,
    starts=7,
    idle_s=10.0,
    connections=10_000,
    restart_bytes=10 * 1024 * MIB,
    restart_partitions=100,
    restart_rounds=3,
    groups=1_000,
    group_members=100,
    group_partitions=1_000,
    commits=20_000,
    offset_records=1_000_000,
    spark_rounds=8,
    spark_warm_ups=2,
    spark_rows={100: 2_000_000, 1024: 500_000},
    micro_batches=40,
    sql_rows=336_776,
    growth_partitions=100_000,
    kills=20,
    rolling_restarts=3,
    cluster_topics=1_000,
    alone_partitions=4_000,
    missed_bytes=512 * MIB,
)
QUICK = Scale(
    rounds=3,
    fetch_bytes=256 * MIB,
    produce_bytes=128 * MIB,
    synced_bytes=16 * MIB,
    requests=5_000,
    paced_records=3_000,
    records=300_000,
    log_records=44_000,
    partitions=4,
    starts=3,
    idle_s=3.0,
    connections=2_000,
    restart_bytes=1024 * MIB,
    restart_partitions=100,
    restart_rounds=1,
    groups=300,
    group_members=100,
    group_partitions=1_000,
    commits=5_000,
    offset_records=100_000,
    spark_rounds=2,
    spark_warm_ups=1,
    spark_rows={100: 300_000, 1024: 75_000},
    micro_batches=10,
    sql_rows=336_776,
    growth_partitions=20_000,
    kills=6,
    rolling_restarts=1,
    cluster_topics=300,
    alone_partitions=2_000,
    missed_bytes=128 * MIB,
)
PAIR = Scale(
    rounds=2,
    fetch_bytes=128 * MIB,
    produce_bytes=64 * MIB,
    synced_bytes=16 * MIB,
    requests=5_000,
    paced_records=2_000,
    records=200_000,
    log_records=44_000,
    partitions=4,
    starts=2,
    idle_s=2.0,
    connections=500,
    restart_bytes=512 * MIB,
    restart_partitions=50,
    restart_rounds=1,
    groups=100,
    group_members=50,
    group_partitions=500,
    commits=5_000,
    offset_records=50_000,
    spark_rounds=2,
    spark_warm_ups=1,
    spark_rows={100: 300_000, 1024: 75_000},
    micro_batches=10,
    sql_rows=100_000,
    growth_partitions=20_000,
    kills=4,
    rolling_restarts=1,
    cluster_topics=100,
    alone_partitions=1_000,
    missed_bytes=64 * MIB,
)
TINY = Scale(
    rounds=2,
    fetch_bytes=2 * MIB,
    produce_bytes=2 * MIB,
    synced_bytes=1 * MIB,
    requests=50,
    paced_records=200,
    records=2_000,
    log_records=1_000,
    partitions=2,
    starts=1,
    idle_s=0.1,
    connections=20,
    restart_bytes=6 * MIB,
    restart_partitions=3,
    restart_rounds=1,
    groups=3,
    group_members=4,
    group_partitions=10,
    commits=200,
    offset_records=2_000,
    spark_rounds=1,
    spark_warm_ups=0,
    spark_rows={100: 8_000},
    micro_batches=3,
    sql_rows=1_000,
    growth_partitions=200,
    kills=1,
    rolling_restarts=1,
    cluster_topics=3,
    alone_partitions=20,
    missed_bytes=1 * MIB,
)
SCALES = {"full": FULL, "quick": QUICK, "pair": PAIR, "tiny": TINY}


@dataclass(frozen=True, slots=True)
class Session:
    """What every group of rows is given. `directory` is empty at first and removed afterwards."""

    scale: Scale
    directory: Path
    checkout: Checkout = field(default_factory=installed)
    is_paired: bool = False
    """Whether another session runs the same rows with another checkout, beside this one."""

    def entrants(self, contestants: Mapping[str, T]) -> dict[str, T]:
        """The contestants that run: where two checkouts are compared, those of millrace alone."""
        return {
            name: contestant
            for name, contestant in contestants.items()
            if is_millrace(name) or not self.is_paired
        }

    @property
    def log(self) -> Path:
        """Where child processes write what went wrong."""
        return self.directory / "children.log"

    def say(self, text: str) -> None:
        """Reports progress on stderr."""
        print(text, file=sys.stderr, flush=True)

    def warm_pages(self, size: int) -> None:
        """Writes and removes a file of `size` bytes, before anything is measured that appends.

        After a few idle seconds a virtual machine may have given its free pages back to its
        host. The first append after that costs several times as much.
        """
        path = self.directory / "pages"
        chunk = bytes(4 * MIB)
        with path.open("wb", buffering=0) as file:
            for _ in range(0, size, len(chunk)):
                file.write(chunk)
        path.unlink()

    def settle(self) -> None:
        """Waits until the disk has what was written, so that no row pays for the one before."""
        os.sync()


@contextlib.contextmanager
def open_session(
    scale: Scale, parent: Path | None, checkout: Checkout | None = None
) -> Iterator[Session]:
    """A session whose data lies in a new directory below `parent` (None: the system's).

    With a `checkout`, it is one of two that are compared.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as name:
        if checkout is None:
            yield Session(scale, Path(name))
        else:
            yield Session(scale, Path(name), checkout, is_paired=True)
