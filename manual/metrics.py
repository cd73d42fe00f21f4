"""The reference of metrics, from their declarations.

Owns the table. The process's own metrics are made by `prometheus_client`, and stand in the page.
"""

from __future__ import annotations

from manual.markdown import code, plain, table
from millrace_server.monitoring.series import EXPOSED


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
