"""Statistics of a broker, as `Admin.describe_statistics` returns them.

`docs/reference/metrics.md` lists the metrics. Values are in the unit of the metric: seconds, bytes,
or a plain number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millrace_protocol.histogram import quantile
from millrace_protocol.messages.statistics import (
    DescribedMetric,
    DescribeStatisticsResponse,
    MetricSample,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a metric under one set of labels.

    Of a histogram, `value` is the sum of the observed values, and `buckets` count them: those up to
    each bound of the metric, above the bound before it, and those above all.
    """

    labels: Mapping[str, str]
    value: float
    buckets: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Of a histogram, how many values were observed."""
        return sum(self.buckets)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with all its samples, by labels. `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    unit: str
    help: str
    bounds: tuple[float, ...]
    samples: tuple[Sample, ...]

    def value(self, **labels: str) -> float:
        """The sum of the samples with these labels, whatever their other labels are."""
        return sum(sample.value for sample in self._matching(labels))

    def count(self, **labels: str) -> int:
        """The same of how many values a histogram has observed."""
        return sum(sample.count for sample in self._matching(labels))

    def quantile(self, fraction: float, **labels: str) -> float | None:
        """An estimate of what `fraction` of a histogram's values do not exceed; None without any.

        `quantile(0.99)` is the 99th percentile.
        """
        buckets = [
            sum(counts) for counts in zip(*(s.buckets for s in self._matching(labels)), strict=True)
        ]
        return quantile(self.bounds, buckets, fraction)

    def _matching(self, labels: Mapping[str, str]) -> Iterator[Sample]:
        return (sample for sample in self.samples if labels.items() <= sample.labels.items())


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """The statistics of one broker since its start; `metrics` by name."""

    node_id: int
    software_version: str
    uptime_ms: int
    metrics: Mapping[str, Metric]


def of_response(response: DescribeStatisticsResponse) -> BrokerStatistics:
    """The statistics in a response."""
    return BrokerStatistics(
        response.node_id,
        response.software_version,
        response.uptime_ms,
        {metric.name: _metric(metric) for metric in response.metrics},
    )


def _metric(found: DescribedMetric) -> Metric:
    return Metric(
        found.name,
        found.kind,
        found.unit,
        found.help,
        tuple(_scaled(bound, found.decimals) for bound in found.bounds),
        tuple(_sample(found, sample) for sample in sorted(found.samples, key=_labels)),
    )


def _sample(metric: DescribedMetric, found: MetricSample) -> Sample:
    labels = dict(zip(metric.labels, found.labels, strict=True))
    return Sample(labels, _scaled(found.value, metric.decimals), found.buckets)


def _labels(sample: MetricSample) -> tuple[str, ...]:
    return sample.labels


def _scaled(value: int, decimals: int) -> float:
    return value / 10**decimals if decimals else value
