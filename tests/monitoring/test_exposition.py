"""The pure part: from samples to the text of either format, and the bound of topics."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_server.monitoring.exposition import encode
from millrace_server.monitoring.series import TOPICS_LEFT_OUT, TOPICS_MAX, series
from millrace_server.statistics import Histogram, Sample, metrics
from millrace_server.statistics.registry import MetricSamples
from tests.monitoring.http_client import OPEN_METRICS, families

VALUES = st.integers(0, 2**53)
# What a name in the registry may be; topics have fewer characters.
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n"))


def errors(samples: dict[tuple[str, str, str], int]) -> MetricSamples:
    return MetricSamples(metrics.REQUEST_ERRORS, tuple(Sample(*each) for each in samples.items()))


@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
@given(samples=st.dictionaries(st.tuples(TEXTS, TEXTS, TEXTS), VALUES, max_size=5))
def test_labels_and_values_come_out_as_they_went_in(
    accept: str, samples: dict[tuple[str, str, str], int]
) -> None:
    text, media_type = encode([errors(samples)], accept)
    found = {
        tuple(sample.labels[name] for name in metrics.REQUEST_ERRORS.labels): sample.value
        for family in families(text.decode(), media_type)
        for sample in family.samples
        if sample.name == metrics.REQUEST_ERRORS.name
    }
    assert found == samples


@given(observed=st.lists(st.integers(0, 10**13), max_size=20))
def test_the_buckets_of_a_histogram_are_cumulative_and_in_seconds(observed: list[int]) -> None:
    histogram = Histogram(metrics.LATENCY_BOUNDS)
    for value in observed:
        histogram.observe(value)
    sample = Sample((), histogram.sum, tuple(histogram.buckets))
    text, media_type = encode([MetricSamples(metrics.FLUSH_DURATION, (sample,))], "")
    found = {
        (each.name, each.labels.get("le")): each.value
        for family in families(text.decode(), media_type)
        for each in family.samples
    }
    name = metrics.FLUSH_DURATION.name
    assert found[f"{name}_count", None] == found[f"{name}_bucket", "+Inf"] == len(observed)
    assert found[f"{name}_sum", None] == sum(observed) / 10**9
    for (kind, le), count in found.items():
        if kind == f"{name}_bucket" and le is not None:
            bound = float(le)
            assert count == sum(value / 10**9 <= bound for value in observed)


def sizes(values: Sequence[int]) -> MetricSamples:
    samples = (Sample((f"topic-{number}",), value) for number, value in enumerate(values))
    return MetricSamples(metrics.LOG_SIZE, tuple(samples))


@given(extra=st.integers(-3, 3), order=st.randoms())
def test_the_largest_topics_have_series_and_the_others_are_counted(
    extra: int, order: Random
) -> None:
    values = list(range(TOPICS_MAX + extra))
    order.shuffle(values)
    shown, left_out = series([sizes(values)])
    assert sorted(sample.value for sample in shown.samples) == sorted(values)[-TOPICS_MAX:]
    assert left_out == MetricSamples(TOPICS_LEFT_OUT, (Sample((), max(0, extra)),))


def test_a_histogram_of_an_api_appears_with_its_first_value() -> None:
    empty, used = Histogram(metrics.LATENCY_BOUNDS), Histogram(metrics.LATENCY_BOUNDS)
    used.observe(1)
    found = MetricSamples(
        metrics.REQUEST_DURATION,
        tuple(
            Sample(("native", api), each.sum, tuple(each.buckets))
            for api, each in (("Fetch", empty), ("Produce", used))
        ),
    )
    shown, _ = series([found])
    assert [sample.labels for sample in shown.samples] == [("native", "Produce")]
