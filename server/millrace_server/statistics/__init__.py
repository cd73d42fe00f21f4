"""What a broker counts: metrics, their values, and the registry that reads them when asked.

It has no dependency, no task and no clock. `docs/statistics.md` lists every metric.
"""

from __future__ import annotations

from millrace_server.statistics import metrics
from millrace_server.statistics.metric import Kind, Metric, Unit
from millrace_server.statistics.registry import (
    Counter,
    Histogram,
    Labels,
    Registry,
    Sample,
    Statistics,
)

__all__ = [
    "Counter",
    "Histogram",
    "Kind",
    "Labels",
    "Metric",
    "Registry",
    "Sample",
    "Statistics",
    "Unit",
    "metrics",
]
