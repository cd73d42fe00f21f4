"""`millrace spark` as a process: what of Spark and Java reaches the terminal, and what does not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from millrace.sync import Admin, Producer
from millrace_cli.exits import Exit
from millrace_server.testing import BrokerThread
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.page import ROOT, check, page_shell, steps, use_port
from tests.quick_spark import needs_java
from tests.spark.standalone_cluster import standalone_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1_200),
    needs_java,
    pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread() as broker:
        with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
            admin.create_topic("clicks", partitions=1)
            producer.send_many("clicks", [b'{"user": 1}', b'{"user": "x"}', b'{"user": 3}'])
        yield broker.servers


def spark(
    servers: str, quick_spark: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **quick_spark, "MILLRACE_SERVERS": servers}
    return subprocess.run(
        [*COMMAND, "spark", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
    )


def test_the_error_of_a_query_is_the_only_line(
    servers: str, quick_spark: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "query.sql").write_text("SELECT usre FROM clicks")
    query = ("--sql", str(tmp_path / "query.sql"), "--schema", "user long")
    done = spark(servers, quick_spark, "aggregate", "clicks", *query)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("millrace: the query: [UNRESOLVED_COLUMN")
    assert "`usre` cannot be resolved. Did you mean" in line
    assert "line 1 pos 7" in line


def test_a_quiet_import_prints_its_result_and_warnings_and_nothing_of_spark(
    servers: str, quick_spark: dict[str, str], tmp_path: Path
) -> None:
    flags = ("--to", str(tmp_path / "out"), "--schema", "user long", "--quiet")
    # Spark logs thousands of lines at this level.
    done = spark(servers, quick_spark, "import", "clicks", *flags, "--conf", "spark.log.level=INFO")
    assert done.returncode == Exit.OK, done.stderr
    assert done.stderr.splitlines() == [
        "millrace: 1 of 3 records has a corrupt value; _corrupt_record has its text",
        "millrace: 1 value of user does not fit its type, at clicks-0 offset 1: 'x'",
    ]
    (line,) = done.stdout.splitlines()
    group, records, *_, lag, corrupt, fields = line.split("\t")
    assert (group, records, lag, corrupt, fields) == ("import-clicks-out", "3", "0", "1", "1")


def test_a_jvm_that_does_not_start_is_an_error_with_its_reason(
    servers: str, quick_spark: dict[str, str], tmp_path: Path
) -> None:
    flags = ("--to", str(tmp_path / "out"), "-g", "unborn", "--conf", "spark.driver.memory=1x")
    done = spark(servers, quick_spark, "import", "clicks", *flags)
    assert done.returncode == Exit.REFUSED
    assert done.stderr.splitlines()[-1].startswith("millrace: Spark's JVM did not start: ")
    assert "1x" in done.stderr.splitlines()[-1]


def test_the_import_of_the_page_on_typed_columns_writes_the_columns_of_the_query_there(
    servers: str, quick_spark: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow.dataset import dataset

    page = (ROOT / "docs" / "typed-columns.md").read_text("utf-8")
    section = page.partition("\n## From a CSV to columns\n")[2].partition("\n## ")[0]
    (command,) = re.findall(r"`(millrace spark import .+?)`", section)
    for name, value in quick_spark.items():
        monkeypatch.setenv(name, value)
    with page_shell(tmp_path) as shell:
        port = int(servers.rpartition(":")[2])
        use_port(shell, port)
        for step in steps(section):
            check(shell, step, port)
        shown, code = shell.run(command)
    assert code == 0, shown
    assert any("1 value of temp does not fit its type" in line for line in shown), shown
    found = dataset(tmp_path / "work" / "landed").to_table(["origin", "temp", "wind_gust"])
    rows = sorted(tuple(row.values()) for row in found.to_pylist())
    assert rows == [("EWR", 39.02, None), ("LGA", None, 5)]


WITH_SHORT_WAIT = """
from millrace_spark.pipeline import executor_wait
executor_wait.WAIT_S = 1.0
from millrace_cli.main import main
main()
"""


def test_an_import_that_waits_for_executors_says_so_and_ends_at_once_when_interrupted(
    servers: str, quick_spark: dict[str, str], tmp_path: Path
) -> None:
    environment = {**os.environ, **quick_spark, "MILLRACE_SERVERS": servers}
    with standalone_cluster(tmp_path, quick_spark, hosts=()) as cluster:
        master = cluster.master
        flags = ("--to", str(tmp_path / "out"), "-g", "waits", "--master", master, "--quiet")
        memory = ("--conf", "spark.executor.memory=700m")
        with subprocess.Popen(
            [sys.executable, "-c", WITH_SHORT_WAIT, "spark", "import", "clicks", *flags, *memory],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            try:
                line = process.stderr.readline()
                assert line.startswith("millrace: no executor has begun a task for ")
                assert master in line and "spark.executor.memory=700m" in line
                process.send_signal(signal.SIGINT)
                assert process.wait(HANG_TIMEOUT_S) == Exit.INTERRUPTED
                assert process.stderr.read() == ""
            finally:
                process.kill()
