"""Requests by api: how many, how long, with which errors. One table for each dialect.

A session counts a request itself, since a call would cost as much as the smallest request may:

    counted = apis[api]
    requests = counted.requests
    counted.requests = requests + 1
    began_ns = 0 if requests & UNTIMED else clock.monotonic_ns()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_server.statistics import metrics
from millrace_server.statistics.registry import Registry

K = TypeVar("K")

UNTIMED = 15
"""A request is timed when the count of those before it has none of these bits: one in 16, and the
first. Timing each takes 2% of the CPU of a small request."""
UNKNOWN = "unknown"
"""The label of all apis that the broker does not have."""


class ApiStatistics:
    """The requests of one api in one dialect."""

    __slots__ = ("_labels", "_registry", "duration", "requests")

    def __init__(self, registry: Registry, dialect: str, api: str) -> None:
        self._registry = registry
        self._labels = (dialect, api)
        self.requests = 0
        self.duration = registry.histogram(metrics.REQUEST_DURATION, dialect, api)
        registry.gauge(metrics.REQUESTS, lambda: self.requests, dialect, api)

    def count_error(self, code: ErrorCode) -> None:
        """Counts one error that is sent."""
        self._registry.counter(metrics.REQUEST_ERRORS, *self._labels, code.name).value += 1


class ApiTable(dict[K, ApiStatistics], Generic[K]):
    """The apis of one dialect. What is not among them counts as one api, `unknown`."""

    def __init__(self, registry: Registry, dialect: str, names: Mapping[K, str]) -> None:
        super().__init__(
            (key, ApiStatistics(registry, dialect, name)) for key, name in names.items()
        )
        self.unknown = ApiStatistics(registry, dialect, UNKNOWN)

    def __missing__(self, key: K) -> ApiStatistics:
        return self.unknown
