"""`millrace cluster`: the brokers, and what each has counted since it started."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_cli.exits import Exit, run
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace.brokers import BrokerDescription, ClusterDescription
    from millrace.statistics import BrokerStatistics, Metric, Sample

cluster = typer.Typer(
    name="cluster", help="Show brokers and their statistics.", no_args_is_help=True
)
QUANTILES = {"p50": 0.5, "p99": 0.99}
_BROKER_COLUMNS = ("broker #", "host", "port #", "controller", "version", "uptime s #")
_METRIC_COLUMNS = ("broker #", "metric", "labels", "value #", "count #", "p50 #", "p99 #")

Found = tuple["BrokerDescription", "BrokerStatistics | None", "str | None"]
"""A broker, and its statistics or the reason why there are none."""


@cluster.callback()
def _cluster() -> None:
    pass


@cluster.command()
def info(
    prefix: Annotated[
        str,
        typer.Option("--metrics", metavar="PREFIX", help="Only metrics that begin with PREFIX."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Show brokers, controller and statistics.

    Without --json, metrics that are 0 are left out. In a pipe, a line begins with `broker` (id,
    host, port, whether it is the controller, version, uptime in seconds) or with `metric` (broker,
    name, labels, value, and of a histogram count, p50 and p99; its value is the sum).
    """

    async def work() -> Exit:
        from millrace.admin import Admin
        from millrace.errors import MillraceError

        found: list[Found] = []
        async with Admin(servers, client_id="millrace-cli") as admin:
            described = await admin.describe_cluster()
            for broker in described.brokers:
                try:
                    statistics = await admin.describe_statistics(broker.node_id, prefix=prefix)
                    found.append((broker, statistics, None))
                except MillraceError as error:
                    found.append((broker, None, str(error)))
        if as_json:
            print(json.dumps(_as_json(described, found)))
        else:
            _show(described, found)
        return Exit.OK if all(reason is None for _, _, reason in found) else Exit.UNAVAILABLE

    run(work())


def _show(described: ClusterDescription, found: list[Found]) -> None:
    brokers = [
        (
            broker.node_id,
            broker.host,
            broker.port,
            "yes" if broker.node_id == described.controller else "no",
            reason if statistics is None else statistics.software_version,
            None if statistics is None else statistics.uptime_ms / 1000,
        )
        for broker, statistics, reason in found
    ]
    show(_BROKER_COLUMNS, brokers, title=f"cluster {described.cluster_id}", kind="broker")
    metrics = [
        (broker.node_id, *row)
        for broker, statistics, _ in found
        if statistics is not None
        for metric in statistics.metrics.values()
        for row in _rows(metric)
    ]
    show(_METRIC_COLUMNS, metrics, title="statistics", kind="metric")


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


def _as_json(described: ClusterDescription, found: list[Found]) -> dict[str, Any]:
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller,
        "brokers": [
            {
                "node_id": broker.node_id,
                "host": broker.host,
                "port": broker.port,
                "error": reason,
                "version": statistics.software_version if statistics else None,
                "uptime_seconds": statistics.uptime_ms / 1000 if statistics else None,
                "metrics": [
                    {
                        "name": metric.name,
                        "kind": metric.kind,
                        "unit": metric.unit,
                        "help": metric.help,
                        "samples": [_sample(metric, sample) for sample in metric.samples],
                    }
                    for metric in (statistics.metrics.values() if statistics else ())
                ],
            }
            for broker, statistics, reason in found
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
