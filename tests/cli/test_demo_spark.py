"""The demo's part with Spark, and the example that streams: their figures are those of the CSV."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace_cli.demo import spark_analysis, spark_process
from millrace_cli.demo.flights import Delay, delays_of_csv, flights_file
from millrace_cli.demo.plot import draw
from millrace_cli.exits import Exit
from tests.quick_spark import needs_java

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

EXAMPLE = Path(__file__).parents[2] / "examples" / "streaming_flights.py"
PNG = b"\x89PNG\r\n\x1a\n"
SPARK_WAIT_S = 280


def delays_by_hand(limit: int) -> dict[str, dict[str, list[int]]]:
    """Delays by hour and by carrier, each departure's."""
    found: dict[str, dict[str, list[int]]] = {
        "hour": defaultdict(list),
        "carrier": defaultdict(list),
    }
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as file:
        for n, row in enumerate(csv.DictReader(io.TextIOWrapper(file, newline=""))):
            if n < limit and row["dep_time"] != "NA":
                for part, delays in found.items():
                    delays[row[part]].append(int(row["dep_delay"]))
    return found


@pytest.mark.spark
@pytest.mark.timeout(1_200)
@needs_java
def test_spark_prints_departures_and_delays_of_the_csv_and_names_the_plot(
    millrace: Millrace, quick_spark: dict[str, str], tmp_path: Path
) -> None:
    limit = 20_000
    millrace.environment.update(quick_spark)
    ended = millrace.process("demo", "--limit", str(limit), cwd=tmp_path, timeout_s=SPARK_WAIT_S)
    stderr = ended.stderr.decode()
    assert ended.returncode == 0, stderr
    by_hand = delays_by_hand(limit)
    expected = []
    for part, order in (("hour", int), ("carrier", str)):
        for key in sorted(by_hand[part], key=order):
            delays = by_hand[part][key]
            count, mean = str(len(delays)), f"{sum(delays) / len(delays):.2f}"
            expected.append([f"{part}-delay", key, count, count, mean, mean])
    printed = [line.split("\t") for line in ended.stdout.decode().splitlines()]
    assert [row for row in printed if row[0].endswith("-delay")] == expected
    assert len(expected) > 30
    assert printed[-1] == ["plot", "flights.png"]
    assert [each.name for each in tmp_path.iterdir()] == ["flights.png"]
    assert (tmp_path / "flights.png").read_bytes().startswith(PNG)
    departures = sum(map(len, by_hand["hour"].values()))
    *before, imported, equal = stderr.splitlines()
    assert imported.startswith("spark: 20,000 records imported in ")
    assert equal.startswith("spark: equal: ")
    assert f"{departures:,} departures in all" in equal
    # Nothing of Spark's own.
    names = ["in", "out", "equal", "order", "sql", "group"]
    assert [line.partition(":")[0] for line in before] == names


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1_200)
@needs_java
def test_the_streaming_example_ends_with_the_figures_of_the_csv(
    quick_spark: dict[str, str],
) -> None:
    ended = subprocess.run(
        [sys.executable, EXAMPLE, "--limit", "4000", "--speed", "2000"],
        capture_output=True,
        text=True,
        timeout=SPARK_WAIT_S,
        env={**os.environ, **quick_spark},
    )
    assert ended.returncode == 0, ended.stderr
    *updates, watermark, streamed, verdict = ended.stdout.splitlines()
    assert len(updates) >= 2
    assert all(line.startswith("batch ") for line in updates)
    # Two hours behind the last flight of 5 January, 23:59 in New York.
    assert watermark == "watermark: 2013-01-06T02:59:00.000Z"
    expected = sum(delays_of_csv(flights_file(), limit=4_000).values(), Delay())
    figures = f"{expected.departures:,} departures, {expected.mean:.2f} minutes late"
    assert streamed.startswith("4,000 flights in ")
    assert figures in streamed
    assert verdict == f"the CSV file has {figures}: equal"


def test_a_delay_that_is_not_that_of_the_csv_is_named_and_is_exit_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = dict(delays_of_csv(flights_file(), limit=2_000))
    assert spark_analysis.compare(expected, expected) is Exit.OK
    # A minute moves from one flight to another of the same hour, which no mean of an hour shows.
    found = {**expected, (8, "UA"): expected[8, "UA"] + Delay(0, 1)}
    found[8, "B6"] += Delay(0, -1)
    capsys.readouterr()
    assert spark_analysis.compare(found, expected) is Exit.REFUSED
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "spark: 2 sums of an hour and a carrier differ from the CSV"
    assert [line.partition(":")[0] for line in lines[1:]] == ["  8 h, B6", "  8 h, UA"]


def test_a_plot_of_no_departures_is_a_plot(tmp_path: Path) -> None:
    draw({}, tmp_path / "none.png")
    assert (tmp_path / "none.png").read_bytes().startswith(PNG)


async def test_without_pyspark_the_part_is_left_out_and_one_line_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    plot = tmp_path / "flights.png"
    assert await spark_process.analyse("localhost:1", "flights", limit=None, plot=plot) is Exit.OK
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ("spark: omitted; it needs pyspark: pip install 'millrace[demo]'\n")


async def test_without_java_the_part_is_left_out_and_one_line_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: pip install '.[dev]'")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    plot = tmp_path / "flights.png"
    assert await spark_process.analyse("localhost:1", "flights", limit=None, plot=plot) is Exit.OK
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "spark: omitted; there is no java on the PATH, and JAVA_HOME is not set; Spark needs "
        "Java 17 or newer: install openjdk-17-jre-headless, or set JAVA_HOME\n"
    )
    assert not plot.exists()


def test_a_plot_in_no_directory_is_refused_before_any_flight_is_sent(
    millrace: Millrace, tmp_path: Path
) -> None:
    ended = millrace("demo", "--plot", str(tmp_path / "none" / "flights.png"))
    assert ended.exit_code == Exit.USAGE
    assert "the directory does not exist" in ended.stderr
