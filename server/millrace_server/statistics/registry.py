"""The registry: values where they arise, read when asked.

Owns counters and histograms, and the functions that ask other objects for what they know anyway. A
value costs the hot path one operation on an object that it holds; adding up is the reader's work,
in steps, because a broker may have thousands of topics. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from millrace_server.statistics.metric import Metric
from millrace_server.statistics.metrics import METRICS

SAMPLES_PER_STEP = 50
"""Read in one step, some 150 us when they are histograms."""

Labels = tuple[str, ...]
"""A value for each label of a metric, in its order."""


class Counter:
    """A number that its owner increases: `counter.value += 1`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """How many observed values were how large, and their sum.

    `buckets[i]` counts the values `bounds[i - 1] < value <= bounds[i]`; the last, which has no
    bound, those above all.
    """

    __slots__ = ("_bounds", "buckets", "sum")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0

    def observe(self, value: int) -> None:
        """Counts one value."""
        self.buckets[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.buckets)


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a metric under some labels.

    Of a histogram, `value` is the sum of what was observed, and `buckets` are as in `Histogram`.
    """

    labels: Labels
    value: int
    buckets: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Of a histogram, how many values were observed."""
        return sum(self.buckets)


@dataclass(frozen=True, slots=True)
class MetricSamples:
    """One metric with all its samples."""

    metric: Metric
    samples: tuple[Sample, ...]


Collect = Callable[[], Iterable[Sample]]
"""Samples of one metric; those with the same labels are added up."""


class Registry:
    """The values of one broker. A metric without values has no samples."""

    def __init__(self) -> None:
        self._collectors: dict[Metric, list[Collect]] = {metric: [] for metric in METRICS}
        self._counters: dict[tuple[str, Labels], Counter] = {}

    def counter(self, metric: Metric, *labels: str) -> Counter:
        """The counter under these labels, the same at each call."""
        key = (metric.name, _checked(metric, labels))
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = counter = Counter()
            self.collect(metric, lambda: (Sample(labels, counter.value),))
        return found

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """A new histogram under these labels."""
        _checked(metric, labels)
        made = Histogram(metric.bounds)
        self.collect(metric, lambda: (Sample(labels, made.sum, tuple(made.buckets)),))
        return made

    def gauge(self, metric: Metric, read: Callable[[], int], *labels: str) -> None:
        """Asks `read` for the value under these labels; a counter's never falls."""
        _checked(metric, labels)
        self.collect(metric, lambda: (Sample(labels, read()),))

    def collect(self, metric: Metric, collect: Collect) -> None:
        """Asks `collect` for samples. Between two of them other code may run."""
        self._collectors[metric].append(collect)

    def read(self, prefix: str = "") -> Iterator[MetricSamples | None]:
        """The metrics whose names begin with `prefix`, in steps.

        None stands between two steps: other work may be done there.
        """
        taken = 0
        for metric, collectors in self._collectors.items():
            if not metric.name.startswith(prefix):
                continue
            found: dict[Labels, Sample] = {}
            for collect in list(collectors):
                for sample in collect():
                    before = found.get(sample.labels)
                    found[sample.labels] = sample if before is None else _sum(before, sample)
                    taken += 1
                    if not taken % SAMPLES_PER_STEP:
                        yield None
            yield MetricSamples(metric, tuple(found.values()))

    def statistics(self, prefix: str = "") -> Statistics:
        """The same at once."""
        return Statistics(tuple(each for each in self.read(prefix) if each is not None))


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a registry held at one moment."""

    metrics: tuple[MetricSamples, ...]

    def value(self, name: str, **labels: str) -> int:
        """The sum of the metric's values under these labels, whatever the other labels are.

        Times are in nanoseconds. Raises `KeyError` for a metric or label that does not exist.
        """
        return sum(sample.value for sample in self._matching(name, labels))

    def count(self, name: str, **labels: str) -> int:
        """The same of how many values a histogram has observed."""
        return sum(sample.count for sample in self._matching(name, labels))

    def _matching(self, name: str, labels: dict[str, str]) -> list[Sample]:
        found = next((each for each in self.metrics if each.metric.name == name), None)
        if found is None or not labels.keys() <= set(found.metric.labels):
            raise KeyError(f"there is no metric {name} with labels {', '.join(labels) or 'at all'}")
        return [
            sample
            for sample in found.samples
            if labels.items() <= set(zip(found.metric.labels, sample.labels, strict=True))
        ]


def _sum(one: Sample, other: Sample) -> Sample:
    buckets = tuple(map(sum, zip(one.buckets, other.buckets, strict=True)))
    return Sample(one.labels, one.value + other.value, buckets)


def _checked(metric: Metric, labels: Labels) -> Labels:
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has labels {metric.labels}, and {labels} are given")
    return labels
