"""`millrace cluster start` and `status`: three broker processes, watched while one is killed."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace_cli.exits import Exit
from tests.cli.conftest import Millrace
from tests.cli.running_cluster import RunningCluster, started
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S

RACK = "cellar"
GROUPS = ("billing", "audit", "search")
"""Each broker coordinates some of them, as a rule."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers for all tests of this file."""
    directory = tmp_path_factory.mktemp("cluster") / "new"
    environment = {"MILLRACE_RACK": RACK, "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    with started(directory, "--brokers", "3", "--port", "0", **environment) as running:
        for _ in range(3):
            assert ", process " in running.stderr_line()
        yield running


def replicated(millrace: Millrace, name: str) -> str:
    """A topic with a replica on each broker."""
    flags = ["--partitions", "3", "--replication-factor", "3"]
    created = millrace("topic", "create", name, *flags, "--config", "min.insync.replicas=2")
    assert created.exit_code == 0, created.output
    return name


def produce(millrace: Millrace, topic: str, records: list[str]) -> None:
    ended = millrace.process("produce", topic, stdin="".join(f"{r}\n" for r in records).encode())
    assert ended.returncode == 0, ended.stderr


def consumed(millrace: Millrace, topic: str, *group: str) -> list[str]:
    """The records that a group has not read, or all; those of a group are committed."""
    ended = millrace("consume", topic, *(("--group", *group) if group else ()))
    assert ended.exit_code == 0, ended.output
    return sorted(ended.stdout.splitlines())


def test_the_first_line_names_all_servers_and_then_all_brokers_are_in_service(
    cluster: RunningCluster,
) -> None:
    servers = cluster.millrace.servers.split(",")
    assert len(servers) == 3
    shown = cluster.millrace("cluster", "info", "--json", "--metrics", "none")
    brokers = json.loads(shown.stdout)["brokers"]
    assert [f"{each['host']}:{each['port']}" for each in brokers] == servers


def test_the_status_of_a_healthy_cluster_has_brokers_and_quorum(cluster: RunningCluster) -> None:
    replicated(cluster.millrace, "orders")
    status = cluster.until(
        lambda status: status["healthy"] and {each["rack"] for each in status["brokers"]} == {RACK}
    )
    assert [each["node_id"] for each in status["brokers"]] == [1, 2, 3]
    assert [each["address"] for each in status["brokers"]] == cluster.millrace.servers.split(",")
    quorum = status["quorum"]
    assert status["controller"] == quorum["leader"]
    assert quorum["leader"] in (1, 2, 3)
    assert [each["voter"] for each in quorum["replicas"]] == [True] * 3
    assert [each["lag"] is not None for each in quorum["replicas"]] == [True] * 3
    assert quorum["high_watermark"] > 0
    assert cluster.millrace("cluster", "status", "--check").exit_code == Exit.OK


def test_the_status_in_a_pipe_has_stable_columns(cluster: RunningCluster) -> None:
    lines = cluster.millrace("cluster", "status").stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    assert [row[0] for row in rows[:4]] == ["cluster", "broker", "broker", "broker"]
    by_kind = {row[0]: row for row in rows}
    assert by_kind["broker"][1:5] == [
        "3",
        cluster.millrace.servers.split(",")[2],
        RACK,
        "in service",
    ]
    assert {len(row) for row in rows if row[0] == "broker"} == {8}
    assert {len(row) for row in rows if row[0] == "quorum"} == {7}


def test_a_killed_broker_is_named_its_partitions_go_on_and_it_comes_back(
    cluster: RunningCluster,
) -> None:
    millrace = cluster.millrace
    topic = replicated(millrace, "survives")
    cluster.until(lambda status: bool(status["healthy"]))
    before, after = ([f"{when}-{n:02}" for n in range(50)] for when in ("before", "later"))
    produce(millrace, topic, before)
    for group in GROUPS:
        assert consumed(millrace, topic, group) == before

    os.kill(int((cluster.directory / "broker-2" / "lock").read_text()), signal.SIGKILL)
    line = cluster.stderr_line()
    assert line.startswith("millrace: broker 2 has ended (signal 9)")
    status = cluster.until(
        lambda status: (
            status["brokers"][1]["fenced"]
            and status["partitions"]["without_leader"] == 0
            and status["partitions"]["at_min_isr"] >= 3
        )
    )
    assert status["brokers"][1]["address"] is None
    assert "fenced: broker 2" in status["problems"]
    assert {tuple(each["faults"]) for each in status["unhealthy"] if each["topic"] == topic} == {
        ("at_min_isr", "under_replicated")
    }
    shown = millrace("cluster", "status", "--check")
    assert shown.exit_code == Exit.REFUSED
    assert "cluster\tfenced: broker 2" in shown.stdout.splitlines()

    produce(millrace, topic, after)
    assert consumed(millrace, topic) == before + after
    for group in GROUPS:
        assert consumed(millrace, topic, group) == after

    words = shlex.split(line.partition("start it again with ")[2])
    assert words[0] == "millrace"
    cluster.run_beside(*words[1:])
    cluster.until(lambda status: bool(status["healthy"]))


def test_the_view_on_a_terminal_is_renewed_until_it_is_interrupted(cluster: RunningCluster) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "cluster", "status", "--watch", "--interval", "0.1"]
    with subprocess.Popen(
        command,
        stdout=theirs,
        env={**os.environ, "MILLRACE_SERVERS": cluster.millrace.servers, "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"metadata quorum") < 3:
            shown += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                if not os.read(ours, 65_536):
                    break
            except OSError:
                break
        assert process.wait(HANG_TIMEOUT_S) == Exit.INTERRUPTED
    os.close(ours)
    assert b"in service" in shown


def test_a_second_start_on_the_directory_is_refused(cluster: RunningCluster) -> None:
    refused = cluster.millrace.process("cluster", "start", "--data", str(cluster.directory))
    assert refused.returncode == Exit.LOCKED
    assert f"is run by process {cluster.process.pid}" in refused.stderr.decode()


def test_a_cluster_goes_on_with_its_data_and_ports(tmp_path: Path) -> None:
    with started(tmp_path / "one", "--brokers", "1", "--port", "0") as first:
        assert first.millrace("topic", "create", "kept").exit_code == 0
        assert first.millrace.process("produce", "kept", stdin=b"one\ntwo\n").returncode == 0
        code, stderr = first.stop()
        assert code == 0, stderr
    with started(tmp_path / "one") as again:
        assert again.millrace.servers == first.millrace.servers
        assert again.millrace("consume", "kept").stdout == "one\ntwo\n"
        assert again.stop()[0] == 0


def test_a_broker_that_cannot_start_is_named_with_its_reason_and_its_exit_code(
    tmp_path: Path, millrace: Millrace
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("partitions = 0\n")
    flags = ["--brokers", "3", "--port", "0", "--config", str(settings)]
    ended = millrace.process("cluster", "start", "--data", str(tmp_path / "new"), *flags)
    assert ended.returncode == Exit.USAGE
    assert ended.stdout == b""
    line = ended.stderr.decode().splitlines()[-1]
    assert "has not started: millrace serve: configuration: partitions: 0 is less than 1" in line
    assert "broker-" in line


def test_the_end_of_the_last_broker_is_the_end_of_the_command(tmp_path: Path) -> None:
    with started(tmp_path / "one", "--brokers", "1", "--port", "0") as running:
        os.kill(int((tmp_path / "one" / "broker-1" / "lock").read_text()), signal.SIGKILL)
        _, stderr = running.process.communicate(timeout=HANG_TIMEOUT_S)
        assert running.process.returncode == Exit.REFUSED
        assert stderr.splitlines()[-1] == "millrace: no broker is left"
