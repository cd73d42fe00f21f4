"""How much a run does: the cases of the matrix, and the size of a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """What the clients of a round do alike. The title is the case's name in rows and goals."""

    value_bytes: int = 100
    partitions: int = 1
    clients: int = 1
    compression: str = "none"
    acks: str = "1"

    @property
    def title(self) -> str:
        """As in `1 KiB, 8 partitions, 1 client, lz4, acks=1`."""
        parts = [
            size_title(self.value_bytes),
            f"{self.partitions} partition{'s' * (self.partitions > 1)}",
            f"{self.clients} client{'s' * (self.clients > 1)}",
        ]
        if self.compression != "none":
            parts.append(self.compression)
        return ", ".join([*parts, f"acks={self.acks}"])


def size_title(size: int) -> str:
    """As in 100 B, or 10 KiB."""
    return f"{size // KIB} KiB" if size >= KIB and size % KIB == 0 else f"{size} B"


@dataclass(frozen=True, slots=True)
class Matrix:
    """The values of each dimension of the matrix."""

    sizes: Sequence[int] = (100, KIB, 10 * KIB, 100 * KIB)
    partitions: Sequence[int] = (1, 8, 64)
    clients: Sequence[int] = (1, 8)
    compressions: Sequence[str] = ("none", "lz4", "zstd")
    acks: Sequence[str] = ("1", "all")

    def whole(self) -> list[Case]:
        """Every combination."""
        dimensions = (self.sizes, self.partitions, self.clients, self.compressions, self.acks)
        return [Case(*values) for values in product(*dimensions)]

    def base(self) -> list[Case]:
        """The two cases that the goals are about."""
        return [Case(value_bytes) for value_bytes in self.sizes[:2]]

    def sides(self) -> list[Case]:
        """One dimension at a time away from a base case; more clients share more partitions."""
        first, *_ = self.base()
        larger = replace(first, value_bytes=KIB)
        return [*dict.fromkeys(self._sides(first, larger))]

    def _sides(self, first: Case, larger: Case) -> Iterator[Case]:
        for value_bytes in self.sizes[2:]:
            yield replace(first, value_bytes=value_bytes)
        for partitions in self.partitions[1:]:
            yield replace(first, partitions=partitions)
        for clients in self.clients[1:]:
            yield replace(first, partitions=clients, clients=clients)
        for compression in self.compressions[1:]:
            yield replace(larger, compression=compression)
        for acks in self.acks[1:]:
            yield replace(first, acks=acks)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done in a round; sizes in bytes."""

    rounds: int
    """Of the base cases, which the goals are about."""
    side_rounds: int
    """Of the other cases; 0: they do not run."""
    warm_ups: int
    """Rounds that do not count."""
    round_records: int
    round_bytes: int
    """A round has as many records as are within both."""
    base_times: int
    """A round of a base case has so many times more, or a fast way ends before it is measured."""
    paced_records: int
    starts: int
    idle_s: float
    fan_outs: Sequence[int]
    many_partitions: Sequence[int]
    group_partitions: int
    group_members: int
    restart_bytes: int
    disk_bytes: int
    spark_rows: int
    spark_rounds: int

    def records(self, value_bytes: int, share: int = 1, *, is_base: bool = False) -> int:
        """Of a round; a slow way has a `share` above 1, and so many times fewer records."""
        times = self.base_times if is_base and share == 1 else 1
        return max(times * min(self.round_records, self.round_bytes // value_bytes) // share, 64)


FULL = Scale(
    rounds=5,
    side_rounds=2,
    warm_ups=1,
    round_records=600_000,
    round_bytes=128 * MIB,
    base_times=4,
    paced_records=3_000,
    starts=3,
    idle_s=5.0,
    fan_outs=(1, 4, 16),
    many_partitions=(1, 100, 1_000),
    group_partitions=64,
    group_members=4,
    restart_bytes=128 * MIB,
    disk_bytes=256 * MIB,
    spark_rows=1_000_000,
    spark_rounds=4,
)
QUICK = Scale(
    rounds=2,
    side_rounds=0,
    warm_ups=0,
    round_records=200_000,
    round_bytes=64 * MIB,
    base_times=1,
    paced_records=1_000,
    starts=1,
    idle_s=1.0,
    fan_outs=(1, 4),
    many_partitions=(1, 100),
    group_partitions=8,
    group_members=2,
    restart_bytes=64 * MIB,
    disk_bytes=64 * MIB,
    spark_rows=200_000,
    spark_rounds=1,
)
TINY = Scale(
    rounds=1,
    side_rounds=0,
    warm_ups=0,
    round_records=500,
    round_bytes=1 * MIB,
    base_times=1,
    paced_records=100,
    starts=1,
    idle_s=0.1,
    fan_outs=(1, 2),
    many_partitions=(1, 3),
    group_partitions=2,
    group_members=1,
    restart_bytes=1 * MIB,
    disk_bytes=1 * MIB,
    spark_rows=1_000,
    spark_rounds=1,
)
SCALES = {"full": FULL, "quick": QUICK, "tiny": TINY}
