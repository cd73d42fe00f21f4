"""Which samples of the registry become time series. Pure.

A monitoring system keeps every series that it has seen for weeks, so their number has a bound,
whatever clients do. The registry bounds all labels but the topic: dialects, apis, errors, states
and brokers are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest

from millrace_server.statistics import Kind, Metric, Sample, metrics
from millrace_server.statistics.registry import MetricSamples

TOPICS_MAX = 1_000
"""Series with a topic: those of the largest topics, because a full disk is the question that they
answer."""
TOPICS_LEFT_OUT = Metric(
    "millrace_topics_left_out",
    Kind.GAUGE,
    f"topics without a series of their own: a scrape has the {TOPICS_MAX:,} largest",
)
EXPOSED = (*metrics.METRICS, TOPICS_LEFT_OUT)
"""Every metric of a scrape."""


def series(found: Iterable[MetricSamples]) -> Iterator[MetricSamples]:
    """The metrics with the samples that are exposed.

    A histogram of an api appears with its first value: most apis are never called, and each would
    be 25 series.
    """
    left_out = 0
    for each in found:
        samples = [s for s in each.samples if s.count or not each.metric.bounds or not s.labels]
        if "topic" in each.metric.labels and len(samples) > TOPICS_MAX:
            left_out = len(samples) - TOPICS_MAX
            samples = nlargest(TOPICS_MAX, samples, key=lambda sample: sample.value)
        yield MetricSamples(each.metric, tuple(samples))
    yield MetricSamples(TOPICS_LEFT_OUT, (Sample((), left_out),))
