"""`millrace cluster info`: brokers and statistics, for people, pipes and programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from millrace_cli.exits import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


def test_info_as_json_has_brokers_and_every_metric(millrace: Millrace) -> None:
    millrace("topic", "create", "counted")
    millrace.process("produce", "counted", stdin=b"a\n")
    shown = json.loads(millrace("cluster", "info", "--json").stdout)
    assert list(shown) == ["cluster_id", "controller", "brokers"]
    (broker,) = shown["brokers"]
    assert shown["controller"] == broker["node_id"] == 0
    assert f"{broker['host']}:{broker['port']}" == millrace.servers
    assert broker["error"] is None and broker["version"] and broker["uptime_seconds"] > 0
    metrics = {metric["name"]: metric for metric in broker["metrics"]}
    assert {m["kind"] for m in metrics.values()} == {"counter", "gauge", "histogram"}
    sizes = {
        sample["labels"]["topic"]: sample["value"]
        for sample in metrics["millrace_log_size_bytes"]["samples"]
    }
    assert sizes["counted"] > 0
    (flushes,) = metrics["millrace_flush_duration_seconds"]["samples"]
    assert set(flushes) == {"labels", "sum", "count", "p50", "p99", "buckets"}
    assert 0 < flushes["p50"] <= flushes["p99"]
    assert sum(bucket["count"] for bucket in flushes["buckets"]) == flushes["count"]
    assert flushes["buckets"][0]["up_to"] == 1e-05
    assert flushes["buckets"][-1]["up_to"] is None


def test_info_in_a_pipe_has_stable_columns(millrace: Millrace) -> None:
    lines = millrace("cluster", "info", "--metrics", "millrace_").stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    host, port = millrace.servers.split(":")
    assert rows[0][:5] == ["broker", "0", host, port, "yes"]
    metrics = rows[1:]
    assert {len(row) for row in metrics} == {8}
    assert {row[0] for row in metrics} == {"metric"}
    found = {(name, labels): value for _, _, name, labels, value, *_ in metrics}
    assert int(found["millrace_connections", "state=open"]) >= 1
    assert ("millrace_connections_refused_total", "-") not in found, "it is 0"


def test_a_prefix_selects_metrics(millrace: Millrace) -> None:
    shown = millrace("cluster", "info", "--json", "--metrics", "millrace_purgatory").stdout
    (broker,) = json.loads(shown)["brokers"]
    assert [metric["name"] for metric in broker["metrics"]] == ["millrace_purgatory_requests"]
    nothing = millrace("cluster", "info", "--metrics", "nothing")
    assert nothing.exit_code == Exit.OK
    assert len(nothing.stdout.splitlines()) == 1


def test_info_of_no_broker_says_so(millrace: Millrace) -> None:
    found = millrace("cluster", "info", "--servers", "127.0.0.1:1")
    assert found.exit_code == Exit.UNAVAILABLE
