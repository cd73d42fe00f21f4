"""The registry of statistics: its sums, and the names of its metrics."""

from __future__ import annotations

import pytest

from millrace_protocol.api import ApiKey, Listener
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.quorum import DescribeQuorumResponse
from millrace_server.dialects.native.request_statistics import api_table, count_errors
from millrace_server.statistics import Histogram, Kind, Metric, Registry, Sample, Unit, metrics
from millrace_server.statistics.registry import SAMPLES_PER_STEP


def test_a_histogram_counts_a_value_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((10, 25, 50))
    for value in (0, 10, 11, 25, 50, 51, 10**12):
        histogram.observe(value)
    assert histogram.buckets == [2, 2, 1, 2]
    assert histogram.count == 7
    assert histogram.sum == 147 + 10**12


def test_the_bounds_of_latencies_are_ten_microseconds_to_five_hundred_seconds() -> None:
    bounds = metrics.LATENCY_BOUNDS
    assert bounds[:4] == (10_000, 25_000, 50_000, 100_000)
    assert bounds[-1] == 500 * 10**9
    assert list(bounds) == sorted(set(bounds))


def test_samples_with_the_same_labels_are_added_up() -> None:
    registry = Registry()
    sizes = [Sample(("a",), 1), Sample(("b",), 2), Sample(("a",), 3)]
    registry.collect(metrics.LOG_SIZE, lambda: sizes)
    statistics = registry.statistics()
    assert statistics.value("millrace_log_size_bytes", topic="a") == 4
    assert statistics.value("millrace_log_size_bytes") == 6


def test_histograms_of_the_same_labels_are_added_up() -> None:
    registry = Registry()
    for duration in (20_000, 30_000):
        registry.histogram(metrics.FLUSH_DURATION).observe(duration)
    statistics = registry.statistics()
    assert statistics.count("millrace_flush_duration_seconds") == 2
    assert statistics.value("millrace_flush_duration_seconds") == 50_000


def test_a_counter_is_the_same_at_each_call_and_read_when_asked() -> None:
    registry = Registry()
    labels = ("native", "Produce", "DISK_FULL")
    registry.counter(metrics.REQUEST_ERRORS, *labels).value += 1
    registry.counter(metrics.REQUEST_ERRORS, *labels).value += 1
    before = registry.statistics()
    registry.counter(metrics.REQUEST_ERRORS, *labels).value += 1
    assert before.value("millrace_request_errors_total", error="DISK_FULL") == 2
    assert registry.statistics().value("millrace_request_errors_total", api="Produce") == 3


def test_the_error_of_a_whole_response_is_counted() -> None:
    registry = Registry()
    key = ApiKey.DESCRIBE_QUORUM
    for code in (ErrorCode.NOT_CONTROLLER, ErrorCode.NONE):
        response = DescribeQuorumResponse(code, None, -1, -1, -1, ())
        count_errors(api_table(registry, Listener.CLIENT)[key], key, response)
    errors = registry.statistics()
    assert errors.value("millrace_request_errors_total", error="NOT_CONTROLLER") == 1
    assert errors.value("millrace_request_errors_total") == 1


def test_a_prefix_selects_metrics_by_name() -> None:
    names = [each.metric.name for each in Registry().statistics("millrace_log_").metrics]
    assert names == ["millrace_log_reads_total", "millrace_log_size_bytes"]


def test_a_metric_or_label_that_does_not_exist_is_a_key_error() -> None:
    statistics = Registry().statistics()
    assert statistics.value("millrace_log_size_bytes", topic="none") == 0
    with pytest.raises(KeyError):
        statistics.value("millrace_log_size")
    with pytest.raises(KeyError):
        statistics.value("millrace_log_size_bytes", partition="0")


def test_many_samples_are_read_in_steps() -> None:
    registry = Registry()
    count = 10 * SAMPLES_PER_STEP
    registry.collect(
        metrics.LOG_SIZE, lambda: (Sample((f"topic-{number}",), 1) for number in range(count))
    )
    read = list(registry.read("millrace_log_size"))
    assert read[:-1] == [None] * 10
    assert read[-1] is not None and len(read[-1].samples) == count


def test_labels_are_as_many_as_the_metric_has() -> None:
    with pytest.raises(ValueError, match="has labels"):
        Registry().gauge(metrics.LOG_SIZE, lambda: 1)


@pytest.mark.parametrize(
    ("name", "kind", "unit"),
    [
        ("millrace_requests", Kind.COUNTER, Unit.NONE),
        ("millrace_sent_total", Kind.COUNTER, Unit.BYTES),
        ("millrace_log_size", Kind.GAUGE, Unit.BYTES),
        ("requests_total", Kind.COUNTER, Unit.NONE),
        ("millrace_Requests_total", Kind.COUNTER, Unit.NONE),
        ("millrace_flush_seconds", Kind.HISTOGRAM, Unit.SECONDS),
    ],
)
def test_a_name_that_breaks_the_conventions_is_refused(name: str, kind: Kind, unit: Unit) -> None:
    """The last has the name of a histogram, and no bounds."""
    with pytest.raises(ValueError, match=name):
        Metric(name, kind, "", unit)


def test_every_metric_has_a_name_of_its_own_and_a_meaning() -> None:
    assert len({metric.name for metric in metrics.METRICS}) == len(metrics.METRICS)
    assert all(metric.help for metric in metrics.METRICS)
    declared = {each for each in vars(metrics).values() if isinstance(each, Metric)}
    assert declared == set(metrics.METRICS)
