"""spark_connector/README.md and PIPELINE.md: their code runs, and tables have every option."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.sync import Admin, Producer
from millrace_cli.main import app
from millrace_server.testing import BrokerThread
from millrace_spark.options.option_names import BATCH_ONLY, BOTH, STREAM_ONLY
from millrace_spark.options.write_options import NAMES
from millrace_spark.reading.range_reader import FETCH_BYTES
from millrace_spark.worker_memory import KEPT_BYTES_MAX
from tests.command_line import write_script
from tests.hang_timeout import HANG_TIMEOUT_S

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "spark_connector" / "README.md").read_text("utf-8")
PIPELINE = (ROOT / "spark_connector" / "PIPELINE.md").read_text("utf-8")
ADDRESS = "localhost:9092"


def blocks(language: str, page: str = PAGE) -> list[str]:
    """The code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


@pytest.mark.spark
@pytest.mark.timeout(1_200)
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_the_code_runs_from_top_to_bottom(
    spark: Any, broker: BrokerThread, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(tmp_path)
    here = {
        "PATH": os.pathsep.join((str(tmp_path), os.environ["PATH"])),
        "MILLRACE_SERVERS": broker.servers,
    }
    commands = blocks("bash")[0]
    subprocess.run(
        ["bash", "-ec", commands], env={**os.environ, **here}, check=True, timeout=HANG_TIMEOUT_S
    )
    names: dict[str, Any] = {}
    for block in blocks("python"):
        assert ADDRESS in block
        code = block.replace(ADDRESS, broker.servers).replace("/data/", f"{tmp_path}/")
        exec(compile(code, "spark_connector/README.md", "exec"), names)
    names["query"].awaitTermination()

    assert names["spark"] is spark
    shown = capsys.readouterr().out
    assert '{"user": 7, "page": "/home"}' in shown
    assert "|   8|/cart|" in shown
    assert names["narrow"].columns == ["value", "offset"]
    assert spark.read.parquet(str(tmp_path / "clicks")).count() == 2
    with Admin(broker.servers) as admin:
        committed = admin.list_group_offsets("clicks-to-parquet")
        assert sum(each.offset for each in committed.values()) == 2
    written = {(bytes(row.key), bytes(row.value)) for row in names["records"].collect()}
    assert written == {(b"7", b'{"page":"/home"}'), (b"8", b'{"page":"/cart"}')}


@pytest.fixture
def signal_handlers() -> Iterator[None]:
    """Puts back the handlers that a command with Spark leaves behind."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "signal_handlers")
def test_the_code_about_pipelines_runs(
    millrace_broker: BrokerThread, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = millrace_broker.servers
    with Admin(servers) as admin:
        admin.create_topic("clicks", partitions=2)
    with Producer(servers) as producer:
        producer.send_many("clicks", [b'{"page": "/home"}'] * 3, keys=[b"7", b"7", b"8"])

    def here(text: str) -> str:
        return text.replace(ADDRESS, servers).replace("/data/", f"{tmp_path}/")

    def run(line: str) -> str:
        command, *arguments = shlex.split(here(line))
        assert command == "millrace"
        done = CliRunner().invoke(app, arguments, env={"MILLRACE_SERVERS": servers})
        assert done.exit_code == 0, (line, done.output)
        return done.stdout

    printed = [run(line) for line in blocks("bash", PIPELINE)[0].splitlines()]
    assert printed[0].split("\t")[:2] == ["import-clicks-clicks", "3"]
    assert printed[2].splitlines()[0].split("\t")[:2] == ["7", "2"]

    query = tmp_path / "query.sql"
    query.write_text(blocks("sql", PIPELINE)[0].replace("2026-01-31", "1970-01-01"))
    schema = "--schema 'page string'"
    assert run(f"millrace spark aggregate clicks --sql {query} {schema}") == "/home\t3\t2\n"

    (program,) = blocks("python", PIPELINE)
    assert ADDRESS in program
    capsys.readouterr()
    exec(compile(here(program), "spark_connector/PIPELINE.md", "exec"), {})
    assert capsys.readouterr().out == "3 0\n"


def test_every_option_is_in_a_table() -> None:
    head, write = PAGE.split("\n## Writing\n")
    batch, stream = head.split("\n## Streaming reads\n")
    for part, wanted in (
        (batch, {*BOTH, *BATCH_ONLY}),
        (stream, {*STREAM_ONLY}),
        (write, {*NAMES}),
    ):
        cells = re.findall(r"^\| (`[\w.]+`(?:, `[\w.]+`)*) \| [^|]*\| ", part, re.M)
        named = {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
        assert wanted <= named, f"without a row: {sorted(wanted - named)}"
        assert named & {*BOTH, *BATCH_ONLY, *STREAM_ONLY} - {*BOTH} <= wanted


def test_the_memory_of_a_worker_is_documented() -> None:
    assert f"two fetches of up to {FETCH_BYTES >> 20} MiB" in PAGE
    assert f"up to {KEPT_BYTES_MAX >> 20} MiB at the end of its heap" in PAGE
