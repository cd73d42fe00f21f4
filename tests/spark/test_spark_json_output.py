"""`--json` of the commands of `millrace spark` that need Spark, in the documented shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.sync import Admin, Producer
from millrace_cli.main import app
from millrace_server.testing import BrokerThread
from tests.cli.json_shapes import check_shape, documented

pytestmark = pytest.mark.spark


def test_an_export_and_its_aggregate_print_the_documented_json(
    spark: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("json-clicks", partitions=1)
        producer.send_many("json-clicks", [b"/home", b"/cart"], keys=[b"user-1", b"user-1"])
    (tmp_path / "rows.json").write_text('{"page": "/home"}\n{"page": "/cart"}\n')
    into = (str(tmp_path / "rows.json"), "--format", "json", "--to", "json-copy", "--create", "1")
    exported = run(broker, "export", *into)
    assert (exported["topic"], exported["records"]) == ("json-copy", 2)
    check_shape(documented()["spark", "export"], exported)
    counted = run(broker, "aggregate", "json-clicks", "--by", "partition")
    assert counted == [{"partition": 0, "records": 2, "bytes": 22, "keys": 1}]
    check_shape(documented()["spark", "aggregate"], counted)


def run(broker: BrokerThread, *arguments: str) -> Any:
    """What `millrace spark ARGUMENTS --json` prints. It uses the session of the tests."""
    environment = {"MILLRACE_SERVERS": broker.servers}
    command = ["spark", *arguments, "--json", "--quiet"]
    done = CliRunner().invoke(app, command, env=environment)
    assert done.exit_code == 0, done.stderr
    (line,) = done.stdout.splitlines()
    return json.loads(line)
