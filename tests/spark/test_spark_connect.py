"""Behind Spark Connect: the connector is on the server's side, and its client needs no package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.sync import Admin, Consumer, Producer
from millrace_server.testing import BrokerThread

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


@pytest.fixture
def address(spark: Any) -> Iterator[str]:
    """Where the JVM of the session answers clients of Spark Connect."""
    pytest.importorskip("grpc", reason="needs grpcio: pip install '.[dev]'")
    services = spark._jvm.org.apache.spark.sql.connect.service
    service = getattr(getattr(services, "SparkConnectService$"), "MODULE$")
    service.start(spark._jsc.sc())
    yield f"sc://localhost:{service.localPort()}"
    service.stop(getattr(service, "stop$default$1")(), getattr(service, "stop$default$2")())


def test_a_client_reads_writes_streams_and_gets_typed_errors(
    address: str, broker: BrokerThread, tmp_path: Path
) -> None:
    with Admin(broker.servers) as admin:
        for topic in ("in", "written", "streamed"):
            admin.create_topic(topic, partitions=2)
    with Producer(broker.servers) as producer:
        for partition in range(2):
            values = [b"%d-%d" % (partition, number) for number in range(50)]
            producer.send_many("in", values, partition=partition)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", address, broker.servers, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    printed = json.loads(ended.stdout)
    assert printed["session"].startswith("pyspark.sql.connect.")
    assert printed["read"] == 100
    assert "There is no topic 'nowhere'; create it first" in printed["refused"]
    with Consumer(broker.servers, "written", "streamed") as consumer:
        found: set[tuple[str, bytes | None]] = set()
        while len(found) < 110:
            found |= {(record.topic, record.value) for record in consumer.getmany()}
    written = {("written", b"1-%d" % number) for number in range(40, 50)}
    streamed = {("streamed", b"%d-%d" % (n // 50, n % 50)) for n in range(100)}
    assert found == written | streamed
