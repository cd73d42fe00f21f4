"""docs/typed-columns.md: one reading of JSON for connector, import, aggregate, and Arrow alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millrace._arrow.json_values import CORRUPT, CORRUPT_FIELDS, read_json
from millrace_spark.pipeline.record_columns import value_fields
from millrace_spark.pipeline.value_schema import parse_schema
from tests.spark.typed_columns import cases, column, columns, records, shown

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
