"""`millrace cluster info`: the brokers of a cluster, and what each of them has counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import Exit, run, unanswered
from millrace_cli.json_output import Json, print_json
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millrace.admin import Admin, TopicDescription
    from millrace.brokers import ClusterDescription
    from millrace.statistics import BrokerStatistics, Metric, Sample
    from millrace_cli.each_broker import BrokerAnswer

QUANTILES = {"p50": 0.5, "p99": 0.99}
_CLUSTER_COLUMNS = ("cluster", "controller #", "brokers #", "topics #", "partitions #")
_BROKER_COLUMNS = ("broker #", "host", "port #", "controller", "version", "uptime s #")
_METRIC_COLUMNS = ("broker #", "metric", "labels", "value #", "count #", "p50 #", "p99 #")


def info(
    prefix: Annotated[
        str,
        typer.Option("--metrics", metavar="PREFIX", help="Only metrics that begin with PREFIX."),
    ] = "",
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Show the brokers and their statistics.

    Without --json, metrics that are 0 are left out. `millrace cluster status` says whether the
    cluster is healthy.

    \b
    In a pipe, a line begins with
      cluster    id, controller, then how many: brokers, topics, partitions
      broker     id, host, port, whether it is the controller, version, uptime in seconds
      unhealthy  topic, partition, leader, replicas, isr
      metric     broker, name, labels, value, and of a histogram count, p50 and p99;
                 its value is the sum
    """

    async def work() -> Exit:
        from millrace.admin import Admin
        from millrace_cli.each_broker import ask_each

        async with Admin(servers, **identity()) as admin:
            described = await admin.describe_cluster()
            found = await ask_each(
                described.brokers,
                lambda node_id: admin.describe_statistics(node_id, prefix=prefix),
            )
            topics = await _topics(admin)
        if as_json:
            print_json(_as_json(described, topics, found))
        else:
            _show(described, topics, found)
        return unanswered((each.broker.node_id, each.error) for each in found)

    run(work())


async def _topics(admin: Admin) -> list[TopicDescription]:
    """The topics that the client may see."""
    from millrace.errors import NotAuthorized

    try:
        names = await admin.list_topics(internal=True)
    except NotAuthorized:
        return []
    outcomes = await admin.describe_topics(names)
    return [each.value for each in outcomes if each.value is not None]


def _show(
    described: ClusterDescription,
    topics: Sequence[TopicDescription],
    found: list[BrokerAnswer[BrokerStatistics]],
) -> None:
    state = (
        *(described.cluster_id, described.controller, len(found)),
        *(len(topics), _partitions(topics)),
    )
    show(_CLUSTER_COLUMNS, [state], kind="cluster")
    brokers = [
        (
            each.broker.node_id,
            each.broker.host,
            each.broker.port,
            _yes(each.broker.node_id == described.controller),
            each.error if each.value is None else each.value.software_version,
            None if each.value is None else each.value.uptime_ms / 1000,
        )
        for each in found
    ]
    show(_BROKER_COLUMNS, brokers, title="brokers", kind="broker")
    metrics = [
        (each.broker.node_id, *row)
        for each in found
        if each.value is not None
        for metric in each.value.metrics.values()
        for row in _rows(metric)
    ]
    show(_METRIC_COLUMNS, metrics, title="statistics", kind="metric")


def _partitions(topics: Sequence[TopicDescription]) -> int:
    return sum(len(topic.partitions) for topic in topics)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _rows(metric: Metric) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for sample in metric.samples:
        labels = ",".join(f"{name}={value}" for name, value in sample.labels.items()) or None
        if metric.kind == "histogram" and sample.count:
            quantiles = [_number(value) for value in _quantiles(metric, sample).values()]
            rows.append((metric.name, labels, _number(sample.value), sample.count, *quantiles))
        elif sample.value:
            rows.append((metric.name, labels, _number(sample.value), None, None, None))
    return rows


def _number(value: float | None) -> object:
    """Integers whole, times with six digits."""
    if value is None:
        return None
    return value if isinstance(value, int) else f"{value:.6g}"


def _as_json(
    described: ClusterDescription,
    topics: Sequence[TopicDescription],
    found: list[BrokerAnswer[BrokerStatistics]],
) -> dict[str, Any]:
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller,
        "topics": len(topics),
        "partitions": _partitions(topics),
        "brokers": [
            {
                "node_id": each.broker.node_id,
                "host": each.broker.host,
                "port": each.broker.port,
                "error": each.error,
                "version": each.value.software_version if each.value else None,
                "uptime_seconds": each.value.uptime_ms / 1000 if each.value else None,
                "metrics": [
                    {
                        "name": metric.name,
                        "kind": metric.kind,
                        "unit": metric.unit,
                        "help": metric.help,
                        "samples": [_sample(metric, sample) for sample in metric.samples],
                    }
                    for metric in (each.value.metrics.values() if each.value else ())
                ],
            }
            for each in found
        ],
    }


def _sample(metric: Metric, sample: Sample) -> dict[str, Any]:
    if metric.kind != "histogram":
        return {"labels": sample.labels, "value": sample.value}
    return {
        "labels": sample.labels,
        "sum": sample.value,
        "count": sample.count,
        **_quantiles(metric, sample),
        "buckets": [
            {"up_to": bound, "count": count}
            for bound, count in zip((*metric.bounds, None), sample.buckets, strict=True)
        ],
    }


def _quantiles(metric: Metric, sample: Sample) -> dict[str, float | None]:
    return {
        name: metric.quantile(fraction, **sample.labels) for name, fraction in QUANTILES.items()
    }
