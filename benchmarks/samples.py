"""What a round of work costs, and how rounds of several contestants are compared.

Owns the arithmetic: a `Sample` per round, a `Spread` over rounds, and ratios taken round by
round. Refuses to know what is measured. Ratios pair the rounds that ran next to each other, so a
slow second of the machine falls on both sides of a ratio; their median is the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one contestant.

    `units` is the work done (bytes, requests or records), `wall_s` the time it took, `cpu_s` the
    CPU time, of all threads, of the process under test.
    """

    units: float
    wall_s: float
    cpu_s: float

    @property
    def per_wall_s(self) -> float:
        """Units per second."""
        return self.units / self.wall_s

    @property
    def per_cpu_s(self) -> float:
        """Units per CPU second of the process under test."""
        # The CPU clock of a process may stand still for a round that is too short to measure.
        return self.units / max(self.cpu_s, 1e-9)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest over the rounds: `low <= median <= high`."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(median(values), min(values), max(values))


def is_millrace(contestant: str) -> bool:
    """Whether a contestant is millrace in one of its ways, and not what it is measured against."""
    return contestant.split()[0].rstrip(",") == "millrace"


def percentile(ascending: Sequence[float], share: float) -> float:
    """The value that `share` of the values (0 <= share < 1), in ascending order, lie below."""
    return ascending[int(len(ascending) * share)]


def interleave(
    contestants: Mapping[str, Callable[[], Sample]], rounds: int
) -> dict[str, list[Sample]]:
    """Runs every contestant once per round and returns the samples of each, by round.

    The order turns by one place from round to round, so that no contestant always runs first.
    """
    names = list(contestants)
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for round_index in range(rounds):
        turn = round_index % len(names)
        for name in names[turn:] + names[:turn]:
            samples[name].append(contestants[name]())
    return samples


def wall_ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> Spread:
    """How many times their units per second ours are, round by round."""
    return Spread.of([a.per_wall_s / b.per_wall_s for a, b in zip(ours, theirs, strict=True)])


def cpu_ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> Spread:
    """How many times their units per CPU second ours are, round by round."""
    return Spread.of([a.per_cpu_s / b.per_cpu_s for a, b in zip(ours, theirs, strict=True)])


def best_ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float:
    """Our fastest round against theirs: disturbances only ever slow a round down."""
    return max(a.per_wall_s for a in ours) / max(b.per_wall_s for b in theirs)
