"""`millrace cluster`: brokers with their statistics, settings and directories; health."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from millrace.admin import Admin, PartitionDescription, TopicDescription
from millrace.brokers import BrokerDescription
from millrace.errors import ConnectionFailed
from millrace_cli.each_broker import ask_each
from millrace_cli.exits import Exit
from millrace_cli.topic_sizes import partition_sizes, topic_size

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


def test_info_as_json_has_brokers_and_every_metric(millrace: Millrace) -> None:
    millrace("topic", "create", "counted", "-p", "2")
    millrace.process("produce", "counted", stdin=b"a\n")
    shown = json.loads(millrace("cluster", "info", "--json").stdout)
    assert shown["partitions"] > shown["topics"] > 0
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
    assert rows[0][0] == "cluster" and rows[0][2:4] == ["0", "1"]
    assert rows[1][:5] == ["broker", "0", host, port, "yes"]
    metrics = rows[2:]
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
    assert len(nothing.stdout.splitlines()) == 2


def test_info_of_no_broker_says_so(millrace: Millrace) -> None:
    found = millrace("cluster", "info", "--servers", "127.0.0.1:1")
    assert found.exit_code == Exit.UNAVAILABLE


def test_a_cluster_of_one_broker_is_healthy(millrace: Millrace) -> None:
    shown = millrace("cluster", "status", "--check")
    assert shown.exit_code == Exit.OK
    healthy, broker, quorum = (line.split("\t") for line in shown.stdout.splitlines())
    assert healthy == ["cluster", "healthy"]
    assert broker[:5] == ["broker", "0", millrace.servers, "-", "in service"]
    assert quorum[:3] == ["quorum", "0", "leader"]
    assert quorum[4:] == ["0", "0", "0"]


def test_status_as_json_has_what_the_lines_have(millrace: Millrace) -> None:
    status = json.loads(millrace("cluster", "status", "--json").stdout)
    assert list(status) == [
        *("cluster_id", "healthy", "problems", "controller"),
        *("brokers", "quorum", "partitions", "unhealthy"),
    ]
    assert (status["healthy"], status["problems"], status["unhealthy"]) == (True, [], [])
    assert status["controller"] == 0


def test_check_and_watch_exclude_each_other(millrace: Millrace) -> None:
    assert millrace("cluster", "status", "--check", "--watch").exit_code == Exit.USAGE


def test_status_without_brokers_is_exit_69(millrace: Millrace, closed_port: str) -> None:
    shown = millrace("cluster", "status", "--servers", closed_port)
    assert shown.exit_code == Exit.UNAVAILABLE


def test_settings_show_their_values_and_what_sets_them(millrace: Millrace) -> None:
    lines = millrace("cluster", "config").stdout.splitlines()
    rows = {name: rest for broker, name, *rest in (line.split("\t") for line in lines)}
    assert rows["log_level"] == ["error", "flag"]
    assert rows["group_initial_rebalance_delay_ms"] == ["0", "environment"]
    assert rows["topic.retention.ms"][1] == "default"
    assert len(rows) == len(lines)


def test_settings_are_selected_by_name_pattern_and_source(millrace: Millrace) -> None:
    one = millrace("cluster", "config", "log_level", "--broker", "0")
    assert one.stdout == "0\tlog_level\terror\tflag\n"
    names = [
        line.split("\t")[1]
        for line in millrace("cluster", "config", "^topic").stdout.split("\n")[:-1]
    ]
    assert "topic.retention.ms" in names
    assert all(name.startswith("topic") for name in names)
    changed = millrace("cluster", "config", "--changed").stdout.splitlines()
    assert "0\tlog_level\terror\tflag" in changed
    assert not [line for line in changed if line.endswith("\tdefault")]


def test_json_settings_have_their_meaning(millrace: Millrace) -> None:
    (broker,) = json.loads(millrace("cluster", "config", "topic.retention.ms", "--json").stdout)
    entry = broker["configs"].pop("topic.retention.ms")
    assert not broker["configs"]
    assert entry["doc"] and entry["source"] == "default" and entry["value"].isdigit()


def test_logs_show_directories_and_the_bytes_of_partitions(millrace: Millrace, topic: str) -> None:
    millrace.process("produce", topic, "-p", "1", stdin=b"a\nb\n")
    directory, *partitions = millrace("cluster", "logs", topic).stdout.splitlines()
    kind, broker, path, count, size, free, total, error = directory.split("\t")
    assert (kind, broker, count, error) == ("directory", "0", "2", "-")
    assert path.startswith("/") and 0 < int(size) < int(free) < int(total)
    assert partitions == [
        f"partition\t0\t{topic}\t0\t0\t0\t-",
        f"partition\t0\t{topic}\t1\t{size}\t0\t-",
    ]
    every = json.loads(millrace("cluster", "logs", "--json").stdout)
    names = {each["topic"] for each in every[0]["directories"][0]["partitions"]}
    assert {topic, "__cluster_metadata"} <= names


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("config", "nonsense"), "no setting 'nonsense'"),
        (("config", "-b", "7"), "the cluster has no broker 7; it has 0"),
        (("logs", "-b", "7"), "the cluster has no broker 7; it has 0"),
        (("logs", "nonsense"), "no topic 'nonsense'"),
    ],
)
def test_what_is_not_there_is_one_line(
    millrace: Millrace, command: tuple[str, ...], sentence: str
) -> None:
    refused = millrace("cluster", *command)
    assert (refused.exit_code, refused.stdout) == (Exit.REFUSED, "")
    (line,) = refused.stderr.splitlines()
    assert sentence in line


async def test_a_broker_that_is_away_hides_no_answer_of_another() -> None:
    async def ask(node_id: int) -> str:
        if node_id == 2:
            raise ConnectionFailed("broker 2 is away")
        return f"broker {node_id} answers"

    brokers = [BrokerDescription(node_id, "host", 1) for node_id in (1, 2, 3)]
    found = await ask_each(brokers, ask)
    assert [each.value for each in found] == ["broker 1 answers", None, "broker 3 answers"]
    assert [each.error for each in found] == [None, "broker 2 is away", None]


async def test_a_broker_that_does_not_answer_delays_others_for_a_bounded_time() -> None:
    async def ask(node_id: int) -> str:
        if node_id == 2:
            await asyncio.Event().wait()
        return f"broker {node_id} answers"

    brokers = [BrokerDescription(node_id, "host", 1) for node_id in (1, 2)]
    first, second = await ask_each(brokers, ask, timeout_s=0.5)
    assert (first.value, first.error) == ("broker 1 answers", None)
    assert (second.value, second.error) == (None, "broker 2 did not answer within 0.5 s")


async def test_bytes_are_unknown_where_a_replica_is_on_a_broker_that_is_away(
    millrace: Millrace, topic: str
) -> None:
    millrace.process("produce", topic, "-p", "0", stdin=b"a\n")
    async with Admin(millrace.servers) as admin:
        found = await admin.describe_topic(topic)
        known = await partition_sizes(admin, [found])
        first, second = found.partitions
        away = PartitionDescription(second.partition, 0, 0, (0, 9), (0,))
        some = TopicDescription(topic, found.topic_id, False, (first, away))
        unknown = await partition_sizes(admin, [some])
    assert topic_size(found, known) == known[topic, 0] > 0  # type: ignore[index, operator]
    assert unknown[topic, 0] == known[topic, 0]  # type: ignore[index]
    assert unknown[topic, 1] is None and topic_size(some, unknown) is None  # type: ignore[index]
