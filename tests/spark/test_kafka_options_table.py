"""docs/spark-kafka-options.md: every option has a verdict, and every verdict is proved."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from millrace_spark.errors import OptionError
from millrace_spark.options import write_options
from millrace_spark.options.option_names import BATCH_ONLY, BOTH, STREAM_ONLY
from millrace_spark.options.read_options import parse_read_options
from millrace_spark.options.write_options import parse_write_options
from millrace_spark.reading.schema import COLUMNS
from millrace_spark.writing.write_schema import check_frame

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark-kafka-options.md").read_text("utf-8")
VERDICTS = ("same", "different", "not yet", "no need")
READ = "Options of a read"
CONSUMER = "Settings of Kafka's consumer, as options of a read"
SESSION = "Settings of the session"
WRITE = "Options of a write"
OURS = "Options only Millrace has"
TEST = r"`(tests/[\w/]+\.py)::(\w+)`"
KINDS = {"batch": (False,), "stream": (True,), "both": (False, True)}
"""`is_stream` of the queries that a row is about."""

SOURCE_OF_SPARK = [
    "assign",
    "subscribe",
    "subscribePattern",
    "kafka.bootstrap.servers",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "kafka.group.id",
    "includeHeaders",
    "startingOffsetsByTimestampStrategy",
]
"""The options in the guide of Spark 4, and in its `KafkaSourceProvider`."""
SINK_OF_SPARK = ["kafka.bootstrap.servers", "topic", "includeHeaders"]
REFUSED_BY_SPARK = [
    "kafka.group.id",
    "kafka.auto.offset.reset",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
    "kafka.key.serializer",
    "kafka.value.serializer",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
]
"""What the guide says of settings that "cannot be set"."""


@dataclass(frozen=True)
class Row:
    """One option or column in one of the tables."""

    section: str
    name: str
    cells: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.section}: {self.name}"

    @property
    def given_name(self) -> str:
        """A name that a row such as `kafka.ssl.*` stands for, or the name itself."""
        return self.name.replace("*", "anything.else")

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Path and name of each test that the row names."""
        return re.findall(TEST, self.cells["test"])


def rows_of_page() -> list[Row]:
    """The rows of all tables, in order."""
    found = []
    for part in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        section = part.partition("\n")[0]
        for table in re.findall(r"(?:^\|.*\n?)+", part, re.M):
            heads, _, *lines = [
                [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
            ]
            for cells in lines:
                named = dict(zip(heads, cells, strict=True))
                found.append(Row(section, named[heads[0]].strip("`"), named))
    return found


ROWS = rows_of_page()
JUDGED = [row for row in ROWS if "verdict" in row.cells]
OPTIONS = [row for row in JUDGED if "option" in row.cells]


def names_in(*sections: str) -> list[str]:
    return [row.name for row in ROWS if row.section in sections]


@cache
def functions_of(path: str) -> dict[str, str]:
    """The tests of a file by name, each with its decorators."""
    source = (ROOT / path).read_text("utf-8")
    return {
        node.name: "\n".join(
            ast.get_source_segment(source, part) or ""
            for part in (*node.decorator_list, *node.body)
        )
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }


def read_names(*, is_stream: bool) -> set[str]:
    """The options that such a read takes."""
    return {*BOTH, *(STREAM_ONLY if is_stream else BATCH_ONLY)}


def write_names(*, is_stream: bool) -> set[str]:
    """The options that such a write takes."""
    return {*write_options.NAMES, *(write_options.STREAM_ONLY if is_stream else ())}


def is_taken(row: Row, *, is_stream: bool) -> bool:
    """Whether the option of a row is one of ours in such a query."""
    names_of = write_names if row.section == WRITE else read_names
    return row.name in names_of(is_stream=is_stream)


def refusals(row: Row) -> list[OptionError]:
    """The outcome in each kind of query when the option of a row is given."""
    found = []
    for is_stream in KINDS[row.cells.get("query", "both")]:
        if row.section in (READ, CONSUMER, SESSION):
            given = {"millrace.servers": "a", "subscribe": "t", row.given_name: "1"}
            with pytest.raises(OptionError) as caught:
                parse_read_options(given, is_stream=is_stream)
            found.append(caught.value)
        if row.section in (WRITE, SESSION):
            given = {"millrace.servers": "a", "topic": "t", row.given_name: "1"}
            with pytest.raises(OptionError) as caught:
                parse_write_options(given, is_stream=is_stream)
            found.append(caught.value)
    return found


def test_every_option_has_a_verdict_and_names_the_difference() -> None:
    assert len(JUDGED) > 60
    for row in JUDGED:
        assert row.cells["verdict"] in VERDICTS, str(row)
        assert row.cells["verdict"] == "same" or row.cells["here"], str(row)
    for section in (READ, CONSUMER, SESSION, WRITE):
        names = names_in(section)
        assert names
        assert len(names) == len(set(names))


def test_every_option_of_sparks_guide_is_there() -> None:
    assert sorted(names_in(READ)) == sorted(SOURCE_OF_SPARK)
    assert set(SINK_OF_SPARK) <= set(names_in(WRITE))
    assert set(REFUSED_BY_SPARK) <= set(names_in(READ, CONSUMER, WRITE))


def test_every_option_that_is_taken_is_there() -> None:
    ours = set(names_in(OURS))
    reads = read_names(is_stream=False) | read_names(is_stream=True)
    writes = write_names(is_stream=False) | write_names(is_stream=True)
    assert reads - ours <= set(names_in(READ))
    assert writes - ours <= set(names_in(WRITE))
    assert ours <= reads | writes
    assert not ours & {*SOURCE_OF_SPARK, *SINK_OF_SPARK}


@pytest.mark.parametrize("row", [row for row in JUDGED if row.cells["verdict"] == "same"], ids=str)
def test_every_equal_option_has_a_test_that_names_it(row: Row) -> None:
    assert row.tests
    bodies = [functions_of(path)[name] for path, name in row.tests]
    name = re.compile(rf"(?<![\w.]){re.escape(row.name)}(?!\w)")
    assert any(name.search(body) for body in bodies), f"{row.name} is in none of {row.tests}"


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(TEST, PAGE)
    assert len(named) > 30
    for path, name in named:
        assert name in functions_of(path), f"{path}::{name}"


@pytest.mark.parametrize("row", OPTIONS, ids=str)
def test_an_option_is_taken_or_refused_as_its_verdict_says(row: Row) -> None:
    kinds = KINDS[row.cells.get("query", "both")]
    taken = {is_taken(row, is_stream=is_stream) for is_stream in kinds}
    assert len(taken) == 1
    if taken == {True}:
        assert row.cells["verdict"] in ("same", "different")
        for is_stream in {False, True} - set(kinds):
            assert not is_taken(row, is_stream=is_stream)
        return
    for error in refusals(row):
        assert error.option == row.given_name
        assert len(error.reason.split()) >= 4, error.reason
        if row.cells["verdict"] == "same":
            assert row.cells["here"].startswith("refused")
        if row.cells["verdict"] == "different":
            instead = re.match(r"is `([\w.]+)`", row.cells["here"])
            assert instead is not None
            assert instead[1] in error.reason


def test_every_column_is_there() -> None:
    columns = [row for row in JUDGED if "column" in row.cells]
    assert [row.name for row in columns[: len(COLUMNS)]] == list(COLUMNS)
    for row in columns[: len(COLUMNS)]:
        assert f"`{COLUMNS[row.name]}`" in row.cells["here"]
    written = [row.name for row in columns[len(COLUMNS) :]]
    every = [(name, kind) for name, kind in COLUMNS.items()]
    assert sorted(written) == sorted(check_frame(every, topic=None))
