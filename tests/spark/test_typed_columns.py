"""docs/typed-columns.md: one reading of JSON, by connector, import, aggregate, export and Arrow."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millrace._arrow.json_values import CORRUPT, CORRUPT_FIELDS, read_json
from millrace.sync import Admin, Consumer, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.pipeline import ImportSettings, import_topics
from millrace_spark.pipeline.aggregate_run import AggregateSettings, aggregate
from millrace_spark.pipeline.errors import TooManyCorrupt
from millrace_spark.pipeline.export_run import ExportSettings, export_files
from millrace_spark.pipeline.record_columns import value_fields
from millrace_spark.pipeline.value_schema import parse_schema
from tests.spark.told import Told
from tests.spark.typed_columns import cases, column, columns, records, shown

WARNS_OF_PANDAS = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning"
)
DDL = ", ".join(f"{name} {kind}" for name, kind in columns().items())
NEIGHBOUR = b'{"bigint_": []}'
"""A record that Arrow refuses, so that those beside it are read a cell at a time."""


@pytest.mark.parametrize("neighbours", [[], [NEIGHBOUR]], ids=["alone", "beside a corrupt one"])
@pytest.mark.parametrize("number", range(len(cases())))
def test_a_value_becomes_what_the_table_says(number: int, neighbours: list[bytes]) -> None:
    case, record = cases()[number], records()[number]
    schema = value_fields(parse_schema(DDL)).append(pa.field(CORRUPT_FIELDS, pa.list_(pa.string())))
    found = read_json(pa.array([record, *neighbours], pa.binary()), schema)
    row = found.batch.to_pylist()[0]
    own = row.pop(column(case.kind))
    if case.kind == "float":
        own = float(str(np.float32(own)))
    assert shown(own) == case.result
    text, fields = row.pop(CORRUPT), row.pop(CORRUPT_FIELDS)
    assert (text is not None) == case.is_corrupt == bool(fields)
    assert (0 in found.corruption.rows) == case.is_corrupt
    assert set(row.values()) == {None}, "the other columns"


@pytest.mark.spark
@WARNS_OF_PANDAS
def test_connector_import_aggregate_and_export_read_what_the_table_says(
    spark: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("table", partitions=1)
        producer.send_many("table", records())
    schema = parse_schema(DDL)

    def connector(topic: str) -> Any:
        reader = spark.read.format("millrace").option("millrace.servers", broker.servers)
        kinds = f"{DDL}, offset long, {CORRUPT} string, {CORRUPT_FIELDS} array<string>"
        return reader.schema(kinds).options(subscribe=topic, valueFormat="json").load()

    told = Told()
    done = import_topics(
        lambda: spark,
        ImportSettings(("table",), str(tmp_path / "import"), broker.servers, schema=schema),
        progress=told,
    )
    found = aggregate(
        lambda: spark,
        AggregateSettings(
            ("table",),
            broker.servers,
            schema=schema,
            sql=f"SELECT offset, {', '.join(columns())} FROM records",
            to=str(tmp_path / "aggregate"),
        ),
    )
    (tmp_path / "values.json").write_bytes(b"\n".join([*records(), b" \n"]))
    exported = export_files(
        lambda: spark,
        ExportSettings(
            str(tmp_path / "values.json"),
            "exported",
            broker.servers,
            file_format="json",
            schema=schema,
            partitions=1,
        ),
    )
    bad = [offset for offset, case in enumerate(cases()) if case.is_corrupt]
    frames = {
        "connector": connector("table"),
        "export": connector("exported"),
        "import": spark.read.parquet(str(tmp_path / "import")),
        "aggregate": spark.read.parquet(str(tmp_path / "aggregate")),
    }
    for name, frame in frames.items():
        texts = [f"string({each}) AS {each}" for each in columns()]
        rows = frame.orderBy("offset").selectExpr("offset", *texts).collect()
        assert [row.offset for row in rows] == list(range(len(cases()))), name
        for case, row in zip(cases(), rows, strict=True):
            own = column(case.kind)
            assert row[own] == case.result, (name, case)
            others = {each: row[each] for each in columns() if each != own}
            assert set(others.values()) == {None}, (name, case)
    for name in ("connector", "import"):
        corrupt = frames[name].where(f"{CORRUPT} IS NOT NULL").select("offset").collect()
        assert sorted(row.offset for row in corrupt) == bad, name
    with Consumer(broker.servers, "exported") as consumer:
        sent = [json.loads(record.value or b"") for record in islice(consumer, len(cases()))]
    corrupt_texts = {at: each[CORRUPT] for at, each in enumerate(sent) if CORRUPT in each}
    assert corrupt_texts == {at: records()[at].decode() for at in bad}
    assert exported.corrupt is not None
    assert exported.corrupt.startswith(f"{len(bad)} of {len(cases())} records have corrupt values")
    assert (done.corrupt.records, done.corrupt.fields) == (len(bad), len(bad))
    assert told.warnings[0].startswith(f"{len(bad)} of {len(cases())} records have corrupt values")
    first = f"{column(cases()[bad[0]].kind)} do not fit its type, the first is at table-0 offset"
    assert first in told.warnings[1]
    assert found.corrupt is not None
    counts = f"{len(bad)} of {len(cases())} records have corrupt values, {len(bad)} fields"
    assert counts in found.corrupt
    assert f"the first is at table-0 offset {bad[0]}, in string_" in found.corrupt


@pytest.mark.spark
@WARNS_OF_PANDAS
def test_a_field_may_have_the_name_of_a_column_of_the_record(
    spark: Any, broker: BrokerThread
) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("names", partitions=1)
        values = [b'{"timestamp": "soon", "key": 7, "record_x": 8}', b"no object"]
        producer.send_many("names", values, keys=[b"k", b"l"])
    options = {"millrace.servers": broker.servers, "subscribe": "names"}
    frame = (
        spark.read.format("millrace")
        .schema("timestamp string, key int, own_key binary, own_timestamp timestamp")
        .options(valueFormat="json", recordPrefix="own_", **options)
        .load()
    )
    rows = sorted(frame.collect(), key=lambda row: bytes(row.own_key))
    assert [tuple(row)[:3] for row in rows] == [("soon", 7, b"k"), (None, None, b"l")]
    assert all(row.own_timestamp.year > 2000 for row in rows)
    found = aggregate(
        lambda: spark,
        AggregateSettings(
            ("names",),
            broker.servers,
            schema=parse_schema("timestamp string, key int, record_x int"),
            sql="SELECT timestamp, key, record_x, offset FROM names ORDER BY offset",
        ),
    )
    assert found.rows == (("soon", "7", "8", "0"), (None, None, None, "1"))
    assert found.corrupt is not None
    assert found.corrupt.startswith("1 of 2 records has a corrupt value, 0 fields")
    assert found.corrupt.endswith("offset 1, which is no JSON object")
    none = AggregateSettings(
        ("names",), broker.servers, schema=parse_schema("a int"), sql="SELECT 1 AS one"
    )
    assert aggregate(lambda: spark, none).corrupt is None, "no record was read"


@pytest.mark.spark
@WARNS_OF_PANDAS
def test_an_import_of_which_every_record_is_corrupt_leaves_nothing_and_takes_another_schema(
    spark: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("wrong", partitions=2)
        producer.send_many("wrong", [b'{"temp": "warm", "at": "x"}'] * 20, keys=[b"a", b"b"] * 10)
    to = tmp_path / "out"

    def settings(schema: str, **more: Any) -> ImportSettings:
        return ImportSettings(
            ("wrong",), str(to), broker.servers, schema=parse_schema(schema), **more
        )

    with pytest.raises(TooManyCorrupt, match=r"^20 of 20 records have corrupt.*wrong-. offset 0"):
        import_topics(lambda: spark, settings("temp double", partition_by=("topic", "date")))
    assert [path for path in to.rglob("*") if "_millrace" not in path.parts] == []
    told = Told()
    done = import_topics(lambda: spark, settings("temp string, tmep int"), progress=told)
    assert (done.records, done.corrupt.records, done.lag) == (20, 0, 0)
    assert told.warnings == [
        "no record has a value of tmep: are the names in --schema those of the values?"
    ]
    with Producer(broker.servers) as producer:
        producer.send_many("wrong", [b'{"temp": 1, "at": "2013-01-31"}'])
    wider = settings("temp string, tmep int, at date")
    assert import_topics(lambda: spark, wider).records == 1
    frame = spark.read.option("mergeSchema", True).parquet(str(to))
    found = frame.groupBy("temp", "at").count().collect()
    assert sorted((row.temp, str(row.at), row["count"]) for row in found) == [
        ("1", "2013-01-31", 1),
        ("warm", "None", 20),
    ]
