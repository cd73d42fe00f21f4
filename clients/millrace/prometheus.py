"""A collector for prometheus-client: the metrics of producers and consumers, in each scrape.

    from prometheus_client import REGISTRY

    REGISTRY.register(ClientCollector(producer, consumer))

Owns names, labels and the bound of series; the numbers are `metrics()` of the clients, which may be
read in any thread. Needs `pip install 'millrace[metrics]'`. A scrape reads the clients and keeps
nothing, so clients spend nothing between scrapes.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Protocol

from millrace.metrics import ConsumerMetrics, Meaning, ProducerMetrics, meanings

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "millrace.prometheus needs prometheus-client: pip install 'millrace[metrics]'"
    ) from error

PARTITIONS_MAX = 1_000
"""Partitions of one consumer that have a series: those with the largest lag."""
LEFT_OUT = "millrace_consumer_partitions_left_out"
LEFT_OUT_HELP = "partitions without a series of their lag: a scrape has the largest lags"
_LABELS = ("client_id",)
_LAG_LABELS = ("client_id", "topic", "partition")
_KINDS: tuple[tuple[str, type[ProducerMetrics] | type[ConsumerMetrics]], ...] = (
    ("producer", ProducerMetrics),
    ("consumer", ConsumerMetrics),
)

Family = CounterMetricFamily | GaugeMetricFamily


class Client(Protocol):
    """A producer or a consumer, of `millrace` or of `millrace.sync`."""

    def metrics(self) -> ProducerMetrics | ConsumerMetrics: ...


class ClientCollector(Collector):
    """The metrics of clients, as `millrace_producer_...` and `millrace_consumer_...`.

    Every series has the label `client_id`; the lag also has `topic` and `partition`. Keeps no
    client alive: the series of a client end when the program has dropped it.
    """

    def __init__(self, *clients: Client) -> None:
        """Raises `ValueError` as `add` does."""
        self._clients: list[weakref.ref[Client]] = []
        for client in clients:
            self.add(client)

    def add(self, client: Client) -> None:
        """Adds a client, which may be closed or not started.

        Raises `ValueError` where another client of the same kind has the same `client_id`: one
        series would have two values.
        """
        new = client.metrics()
        for other in self._alive():
            found = other.metrics()
            if type(found) is type(new) and found.client_id == new.client_id:
                kind = type(client).__name__.lower()
                raise ValueError(
                    f"client_id: another {kind} has {new.client_id!r} too; give each of them a "
                    "client_id of its own"
                )
        self._clients.append(weakref.ref(client, self._clients.remove))

    def describe(self) -> Iterator[Family]:
        """The metrics without values: a registry refuses a second collector by their names."""
        return _families([])

    def collect(self) -> Iterator[Family]:
        """The values now. May be called in any thread."""
        return _families([client.metrics() for client in self._alive()])

    def _alive(self) -> list[Client]:
        return [client for ref in list(self._clients) if (client := ref()) is not None]


def metric_name(kind: str, name: str, meaning: Meaning) -> str:
    """The name in Prometheus of a field. Times are in seconds there.

    >>> metric_name("producer", "produce_latency_ms", Meaning("counter", ""))
    'millrace_producer_produce_latency_seconds_total'
    """
    in_seconds = re.sub("_ms$", "_seconds", name)
    return f"millrace_{kind}_{in_seconds}" + ("_total" if meaning.kind == "counter" else "")


def _families(found: Sequence[ProducerMetrics | ConsumerMetrics]) -> Iterator[Family]:
    for kind, metrics in _KINDS:
        values = [each for each in found if isinstance(each, metrics)]
        for name, meaning in meanings(metrics):
            if name == "lag":
                continue
            of_kind = CounterMetricFamily if meaning.kind == "counter" else GaugeMetricFamily
            family = of_kind(metric_name(kind, name, meaning), meaning.help, labels=_LABELS)
            divisor = 1_000 if name.endswith("_ms") else 1
            for each in values:
                family.add_metric((each.client_id,), getattr(each, name) / divisor)
            yield family
    yield from _lag_families([each for each in found if isinstance(each, ConsumerMetrics)])


def _lag_families(consumers: Sequence[ConsumerMetrics]) -> Iterator[Family]:
    meaning = dict(meanings(ConsumerMetrics))["lag"]
    name = metric_name("consumer", "lag", meaning)
    lags = GaugeMetricFamily(name, meaning.help, labels=_LAG_LABELS)
    left_out = GaugeMetricFamily(LEFT_OUT, LEFT_OUT_HELP, labels=_LABELS)
    for each in consumers:
        shown = nlargest(PARTITIONS_MAX, each.lag.items(), key=lambda item: item[1])
        for where, lag in shown:
            lags.add_metric((each.client_id, where.topic, str(where.partition)), lag)
        left_out.add_metric((each.client_id,), len(each.lag) - len(shown))
    yield lags
    yield left_out
