"""A real Prometheus scrapes real brokers, and the alerts fire when their causes are made.

The broker of each test is a job of one Prometheus, which takes five seconds to begin.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.sync import Admin, Producer
from millrace_server.limits import Limits
from millrace_server.testing import BrokerThread
from millrace_server.testing.reserved_ports import ReservedPorts
from tests.cli.conftest import serving
from tests.command_line import COMMAND
from tests.monitoring.prometheus import PROMETHEUS, REASON, Prometheus, prometheus

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason=REASON)


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus for the brokers of all tests. `millrace` is the name that the rules expect."""
    directory = tmp_path_factory.mktemp("prometheus")
    with prometheus(directory, "millrace", "healthy", "waiting", "faulty") as running:
        yield running


def test_prometheus_has_what_the_broker_counts_and_no_alert(watching: Prometheus) -> None:
    with (
        BrokerThread(metrics_listen=str(watching.ports["healthy"])) as broker,
        Admin(broker.servers) as admin,
        Producer(broker.servers) as producer,
    ):
        watching.until(lambda: watching.values('up{job="healthy"}') == [1])
        admin.create_topic("t")
        producer.send_many("t", [b"%d" % number for number in range(1_000)])
        name = "millrace_appended_records_total"
        counted = broker.statistics().value(name)
        assert counted >= 1_000
        watching.until(lambda: watching.values(f'{name}{{job="healthy"}}') == [counted])
        # The disk of a machine that runs tests may be full.
        watching.until(lambda: watching.firing("healthy") <= {"MillraceDiskFilling"})


def test_a_killed_broker_is_an_alert(watching: Prometheus, tmp_path: Path) -> None:
    port = str(watching.ports["millrace"])
    with serving("--data", str(tmp_path), "--metrics-listen", port) as broker:
        watching.until(lambda: watching.values('up{job="millrace"}') == [1])
        watching.until(lambda: "MillraceBrokerDown" not in watching.firing("millrace"))
        broker.process.kill()
        watching.until(lambda: "MillraceBrokerDown" in watching.firing("millrace"))


def test_a_broker_without_a_quorum_is_two_alerts(watching: Prometheus, tmp_path: Path) -> None:
    """It waits for two voters that are not there."""
    reserved = ReservedPorts(4)
    listen, *ports = reserved.ports
    voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in enumerate(ports, 1))
    command = [
        *(*COMMAND, "serve", "--data", str(tmp_path), "--node-id", "1"),
        *("--listen", f"127.0.0.1:{listen}", "--quorum", voters),
        *("--metrics-listen", str(watching.ports["waiting"])),
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wanted = {"MillraceBrokerNotReady", "MillraceNoActiveController"}
            watching.until(lambda: wanted <= watching.firing("waiting"))
        finally:
            process.kill()
            reserved.release()


def test_a_lost_partition_and_refused_connections_are_alerts(
    watching: Prometheus, tmp_path: Path
) -> None:
    with BrokerThread(data=tmp_path) as broker, Admin(broker.servers) as admin:
        admin.create_topic("t")
    shutil.rmtree(tmp_path / "t-0")
    listen, limits = str(watching.ports["faulty"]), Limits(connections_max=1)
    with BrokerThread(data=tmp_path, metrics_listen=listen, limits=limits) as broker:
        watching.until(lambda: "MillracePartitionsOffline" in watching.firing("faulty"))
        assert "MillraceConnectionsRefused" not in watching.firing("faulty")
        with asking(broker) as answer:
            assert answer.startswith(b"topic t")

            def is_refused_and_told() -> bool:
                with asking(broker) as refusal:
                    assert b"its limit" in refusal
                return "MillraceConnectionsRefused" in watching.firing("faulty")

            watching.until(is_refused_and_told)


@contextmanager
def asking(broker: BrokerThread) -> Iterator[bytes]:
    """The answer to a text command, on a connection that is open meanwhile."""
    with socket.create_connection(("127.0.0.1", broker.port)) as connection:
        connection.sendall(b"TOPICS\n")
        yield connection.recv(1_000)
