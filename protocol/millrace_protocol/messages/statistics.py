"""DescribeStatistics: the statistics of a broker since its start."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class DescribeStatisticsRequest(Request):
    """Asks a broker for its metrics."""

    prefix: str = wire(STRING, "only metrics whose names begin with this; empty for all")


@message
class MetricSample(Message):
    """The value of a metric under one set of labels."""

    labels: tuple[str, ...] = wire(
        array_of(STRING), "a value for each label of the metric, in its order"
    )
    value: int = wire(INT64, "the value; of a histogram, the sum of the observed values")
    buckets: tuple[int, ...] = wire(
        array_of(INT64),
        "of a histogram, how many observed values lie in each bucket: one for each bound, and one "
        "above all bounds; else none",
    )


@message
class DescribedMetric(Message):
    """One metric with all its samples."""

    name: str = wire(STRING, "its name, W-4.24.1")
    kind: str = wire(STRING, "counter, gauge or histogram")
    unit: str = wire(STRING, "bytes or seconds; empty for a plain number")
    decimals: int = wire(
        INT16, "every value is a whole number of 10^-decimals of the unit: 9 for nanoseconds"
    )
    help: str = wire(STRING, "meaning, for people")
    labels: tuple[str, ...] = wire(array_of(STRING), "the names of its labels")
    bounds: tuple[int, ...] = wire(
        array_of(INT64), "of a histogram, the largest value of each bucket, ascending; else none"
    )
    samples: tuple[MetricSample, ...] = wire(
        array_of(MetricSample), "in any order; no two have the same labels"
    )


@message
class DescribeStatisticsResponse(Message):
    """The metrics of the broker that was asked."""

    node_id: int = wire(INT32, "the broker's id in the metadata")
    software_version: str = wire(STRING, "version of the broker's software")
    uptime_ms: int = wire(INT64, "time since the broker started", unit="ms")
    metrics: tuple[DescribedMetric, ...] = wire(array_of(DescribedMetric), "the metrics")
