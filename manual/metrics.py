"""The reference of metrics, from their declarations.

Owns the tables. The process's own metrics are made by `prometheus_client`, and stand in the page.
"""

from __future__ import annotations

from collections.abc import Iterator

from manual.markdown import code, plain, table
from millrace.metrics import ConsumerMetrics, ProducerMetrics, meanings
from millrace.prometheus import LEFT_OUT, LEFT_OUT_HELP, metric_name
from millrace_server.monitoring.series import EXPOSED

_CLIENT_HEAD = ("in Prometheus", "in Python", "kind", "meaning", "Kafka's Java client")


def metric_table() -> str:
    """Every metric of a broker, with what Kafka's JMX calls it."""
    rows = [
        (
            code(metric.name),
            str(metric.kind),
            ", ".join(map(code, metric.labels)),
            plain(metric.help),
            code(metric.kafka) if metric.kafka else "",
        )
        for metric in EXPOSED
    ]
    return table(("metric", "kind", "labels", "meaning", "Kafka's JMX"), rows)


def producer_table() -> str:
    """Every metric of a producer, with what Kafka's Java client calls it."""
    return table(_CLIENT_HEAD, _client_rows("producer", ProducerMetrics))


def consumer_table() -> str:
    """The same of a consumer."""
    left_out = (code(LEFT_OUT), "", "gauge", plain(LEFT_OUT_HELP), "")
    return table(_CLIENT_HEAD, [*_client_rows("consumer", ConsumerMetrics), left_out])


def _client_rows(
    kind: str, metrics: type[ProducerMetrics] | type[ConsumerMetrics]
) -> Iterator[tuple[str, ...]]:
    for name, meaning in meanings(metrics):
        yield (
            code(metric_name(kind, name, meaning)),
            code(name),
            meaning.kind,
            plain(meaning.help),
            code(meaning.kafka) if meaning.kafka else "",
        )
