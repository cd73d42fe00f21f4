"""Checks of W-4.24: statistics. A broker is free in its choice of metrics."""

from __future__ import annotations

import re
from itertools import pairwise

from tests.wire.check import Target, check, equal, true
from tests.wire.client import Connection
from tests.wire.layouts import Fields


def _metrics(wire: Connection, prefix: str = "") -> dict[str, Fields]:
    found = wire.call("DescribeStatistics", prefix).metrics
    named = {metric.name: metric for metric in found}
    equal(len(named), len(found), "names that differ")
    return named


@check("W-4.24.1")
def a_metrics_name_ends_with_its_unit_and_that_of_a_counter_with_total(target: Target) -> None:
    """Lower-case letters and underscores; a unit is bytes or seconds."""
    with target.connect() as wire:
        metrics = _metrics(wire)
        true(metrics, "no metrics at all")
        for name, metric in metrics.items():
            true(metric.kind in ("counter", "gauge", "histogram"), f"{name}: {metric.kind}")
            true(metric.unit in ("", "bytes", "seconds"), f"{name}: {metric.unit}")
            end = f"_{metric.unit}" if metric.unit else ""
            end += "_total" if metric.kind == "counter" else ""
            true(re.fullmatch(r"[a-z_]+", name) and name.endswith(end), f"{name} without {end}")
            true(metric.help, f"{name} has no meaning")


@check("W-4.24.1")
def counters_and_histograms_never_fall(target: Target) -> None:
    """Two answers, with requests between them."""
    with target.connect() as wire:
        earlier = _metrics(wire)
        for _ in range(3):
            wire.call("Metadata", [])
        later = _metrics(wire)
        for name, metric in earlier.items():
            if metric.kind == "gauge":
                continue
            now = {tuple(sample.labels): sample for sample in later[name].samples}
            for sample in metric.samples:
                grown = now[tuple(sample.labels)]
                pairs = zip(sample.buckets, grown.buckets, strict=True)
                true(grown.value >= sample.value, f"{name} {sample.labels} fell")
                true(all(a <= b for a, b in pairs), f"{name} {sample.labels}: buckets fell")


@check("W-4.24.2")
def a_sample_has_a_value_for_each_label_and_a_histogram_a_count_for_each_bucket(
    target: Target,
) -> None:
    """No two samples have the same labels, and bounds ascend."""
    with target.connect() as wire:
        for name, metric in _metrics(wire).items():
            labels = [tuple(sample.labels) for sample in metric.samples]
            equal(len(labels), len(set(labels)), f"{name}: labels that differ")
            equal({len(each) for each in labels} - {len(metric.labels)}, set(), f"{name}: labels")
            true(all(a < b for a, b in pairwise(metric.bounds)), f"{name}: bounds")
            is_histogram = metric.kind == "histogram"
            equal(bool(metric.bounds), is_histogram, f"{name} has bounds")
            wanted = len(metric.bounds) + 1 if is_histogram else 0
            counts = {len(sample.buckets) for sample in metric.samples}
            equal(counts - {wanted}, set(), f"{name}: buckets")


@check("W-4.24", "W-4.24.2")
def a_prefix_selects_metrics_and_one_that_none_has_selects_none(target: Target) -> None:
    """The metrics of a prefix are those of the whole answer that begin with it."""
    with target.connect() as wire:
        names = list(_metrics(wire))
        prefix = names[0][: names[0].rindex("_") + 1]
        selected = [name for name in names if name.startswith(prefix)]
        equal(list(_metrics(wire, prefix)), selected, f"metrics of {prefix}")
        equal(_metrics(wire, target.name()), {}, "metrics of a prefix that none has")
        answer = wire.call("DescribeStatistics", prefix)
        true(answer.software_version and answer.uptime_ms >= 0, "version and uptime")
