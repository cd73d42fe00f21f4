"""The exposition formats: the samples of a registry, and the process, as text for Prometheus.

Owns the translation to the families of `prometheus_client`, which knows both formats. Blocking:
`encode` takes milliseconds and reads `/proc`, so a worker thread runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from millrace_server.monitoring.series import series
from millrace_server.statistics import Kind, Metric, Sample
from millrace_server.statistics.registry import MetricSamples


def encode(found: Iterable[MetricSamples], accept: str) -> tuple[bytes, str]:
    """The text and its media type, chosen by the header Accept. Blocking."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(found))
    ProcessCollector(registry=registry)
    encoder, media_type = choose_encoder(accept)
    return encoder(registry), media_type


class _Samples(Collector):
    """Gives the samples once."""

    def __init__(self, found: Iterable[MetricSamples]) -> None:
        self._found = found

    def collect(self) -> Iterator[Family]:
        for each in series(self._found):
            yield _family(each.metric, each.samples)


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    scale = 10**metric.decimals
    name, meaning, labels, unit = metric.name, metric.help, metric.labels, metric.unit
    if metric.kind is Kind.HISTOGRAM:
        bounds = [*(str(bound / scale) for bound in metric.bounds), "+Inf"]
        histogram = HistogramMetricFamily(name, meaning, labels=labels, unit=unit)
        for sample in samples:
            buckets = list(zip(bounds, accumulate(sample.buckets), strict=True))
            histogram.add_metric(sample.labels, buckets, sample.value / scale)
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily
    if metric.kind is Kind.COUNTER:
        family = CounterMetricFamily(name, meaning, labels=labels, unit=unit)
    else:
        family = GaugeMetricFamily(name, meaning, labels=labels, unit=unit)
    for sample in samples:
        family.add_metric(sample.labels, sample.value / scale)
    return family
