"""Values that are JSON objects become columns, each row those of its own value."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace._arrow.columns import arrow_batches
from millrace._arrow.json_columns import Example
from millrace._arrow.json_values import (
    CORRUPT,
    CORRUPT_FIELDS,
    check_fields,
    parse_json,
    read_json,
)
from millrace.errors import SchemaError
from millrace.records import RecordBatch, TopicPartition
from millrace_protocol.records import encode_batch

USER = pa.field("user", pa.int64())
PAGE = pa.field("page", pa.string())
SCHEMA = pa.schema([USER, PAGE, pa.field(CORRUPT, pa.string())])


def parsed(values: list[bytes | None], schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    """The rows of some values, without what is null in them."""
    columns = parse_json(pa.array(values, pa.binary()), schema)
    columns.validate(full=True)
    assert columns.schema == schema
    return [{k: v for k, v in row.items() if v is not None} for row in columns.to_pylist()]


def test_fields_are_columns_and_fields_that_are_not_wanted_are_left_out() -> None:
    assert parsed([b'{"user":1,"page":"a","zz":{"y":[1]}}', b'{"page":"b"}']) == [
        {"user": 1, "page": "a"},
        {"page": "b"},
    ]


def test_a_value_that_is_null_gives_nulls() -> None:
    assert parsed([None, b'{"user":1}', None, b"null"]) == [{}, {"user": 1}, {}, {}]
    assert parsed([]) == []


def test_json_over_several_lines_is_one_value() -> None:
    pretty = json.dumps({"user": 1, "page": "a"}, indent=2).encode()
    assert parsed([pretty, b"\n" + pretty + b"\r\n"]) == [{"user": 1, "page": "a"}] * 2


def test_a_value_may_have_lists_of_lists() -> None:
    value = b'{"to":[[[0,"]]],\\"",1]]],"user":4,"x":[[[{"user":5}]]],"y":{}}'
    assert parsed([value, b'{"user":6}']) == [{"user": 4}, {"user": 6}]


def test_nested_types_times_days_and_decimals() -> None:
    row = pa.struct([pa.field("d", pa.date32()), pa.field("n", pa.decimal128(10, 2))])
    schema = pa.schema(
        [
            pa.field("t", pa.timestamp("us", tz="UTC")),
            pa.field("rows", pa.list_(pa.field("element", row))),
        ]
    )
    check_fields(schema)
    value = b'{"t":"2020-01-01T01:00:00+01:00","rows":[{"d":"2021-02-03","n":"1.5"},null]}'
    (found,) = parsed([value], schema)
    assert found["t"].isoformat() == "2020-01-01T00:00:00+00:00"
    (first, second) = found["rows"]
    assert (first["d"].isoformat(), first["n"], second) == ("2021-02-03", Decimal("1.50"), None)


BAD = [
    b"nope",
    b"",
    b"5",
    b"[1]",
    b'"x"',
    b'{"user":1.5}',
    b'{"user":"one"}',
    b'{"user":9223372036854775808}',
    b'{"user":1]',
    b'{"user":1}{"user":2}',
    b'{"user":1}} {"v":{"user":2}',
    b'{"user":1}} {"v":{"user":2}, "x":{"y":0',
    b'{"user":3}\0',
    b'{"user":1}}\0',
    b'{"page":"a\nb"}',
    b'{"page":"\xff\xfe"}',
    b'{"user":',
    b"1}",
    b'{"user":1},"x":2',
    b'{"user":1},"x":{}',
    b'{"user":1},{"user":2}',
    b'{"user":1}],[{"user":2}',
    b'{"user":1}]],[[{"user":2}',
    b'{"user":1}]]],"x":[[[{"user":2}',
    b'{"user":1} ] ]\n] , "v" : [[[2',
    b'{"user":1}]]]}\n{"v":[[[{"user":2}',
]


@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_does_not_parse_or_fit_is_corrupt_and_its_neighbours_are_not(
    bad: bytes,
) -> None:
    good = [b'{"user":%d}' % number for number in range(6)]
    rows = parsed([*good[:3], bad, *good[3:]])
    assert rows.pop(3) == {CORRUPT: bad.decode(errors="replace")}
    assert rows == [{"user": number} for number in range(6)]


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 99), st.sampled_from(BAD)), max_size=30))
def test_each_row_is_that_of_its_own_value_whatever_is_around_it(
    items: list[int | bytes],
) -> None:
    values = [b'{"user":%d}' % item if isinstance(item, int) else item for item in items]
    assert parsed(list(values)) == [
        {"user": item} if isinstance(item, int) else {CORRUPT: item.decode(errors="replace")}
        for item in items
    ]


NESTED = pa.schema(
    [
        *SCHEMA,
        pa.field(CORRUPT_FIELDS, pa.list_(pa.string())),
        pa.field("rate", pa.float64()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("is_new", pa.bool_()),
        pa.field("tags", pa.list_(pa.field("element", pa.int16()))),
        pa.field("place", pa.struct([("city", pa.string()), ("lat", pa.float32())])),
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.integers(-9, 99).map(str),
    st.datetimes().map(str),
    st.dates().map(str),
    st.decimals(-1000, 1000, places=3).map(str),
)
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["city", "lat", "x"]), inner, max_size=3),
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(NESTED.names), ANY_JSON, max_size=5)


@settings(deadline=None, max_examples=300)
@given(st.lists(OBJECTS, min_size=1, max_size=4))
def test_a_record_is_read_alone_as_it_is_read_among_corrupt_ones(
    objects: list[dict[str, Any]],
) -> None:
    values = [json.dumps(each).encode() for each in objects]
    alone = [read_json(pa.array([value]), NESTED).batch for value in values]
    among = read_json(pa.array([*values, b"nope", b'{"user":[]}']), NESTED)
    among.batch.validate(full=True)
    assert among.corruption.field_count >= 1
    # Arrow compares them, because NaN is not equal to itself.
    for row, each in enumerate(alone):
        found = among.batch.slice(row, 1)
        for name in NESTED.names:
            assert str(found.column(name)) == str(each.column(name)), (name, values[row])


def test_each_corrupt_field_is_counted_and_the_first_is_shown() -> None:
    values = [b'{"user":"a"}', b'{"user":1,"page":"x"}', b'{"user":{"b":1}}', b"no", b'{"user":[]}']
    found = read_json(pa.array(values), SCHEMA).corruption
    assert found.rows == {0: ["user"], 2: ["user"], 3: [], 4: ["user"]}
    assert found.fields == {"user": Example(3, 0, "a"), "": Example(1, 3, "no")}
    assert found.field_count == 3


def test_the_fields_that_do_not_fit_are_named_where_a_column_is_for_it() -> None:
    value = b'{"tags":[1,"x",70000],"place":{"lat":"north","city":"a"},"user":1}'
    (row,) = parsed([value], NESTED)
    assert row[CORRUPT_FIELDS] == ["tags[]", "place.lat"]
    assert row[CORRUPT] == value.decode()
    assert (row["user"], row["tags"]) == (1, [1, None, None])
    assert row["place"] == {"city": "a", "lat": None}


def test_a_field_nested_deeper_than_python_can_go_costs_no_other_field() -> None:
    deep = b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b',"user":7}'
    assert parsed([b"no", deep, b'{"user":8}'])[1:] == [{"user": 7}, {"user": 8}]


def test_bytes_that_are_not_utf8_cost_only_the_field_they_are_in() -> None:
    values: list[bytes | None] = [
        b'{"zz":"\xff","user":1,"page":"a"}',
        b'{"user":1,"page":"\xff"}',
        b"no",
    ]
    first, second, _ = parsed(values)
    assert first == {"user": 1, "page": "a"}
    assert second["user"] == 1 and "page" not in second


def test_a_byte_order_mark_before_a_value_is_skipped() -> None:
    assert parsed([b'\xef\xbb\xbf{"user":1}']) == [{"user": 1}]


def test_without_the_column_for_it_a_corrupt_text_is_not_kept() -> None:
    assert parsed([b"x", b'{"user":1}'], pa.schema([USER])) == [{}, {"user": 1}]


def test_a_schema_of_only_the_corrupt_column_finds_values_that_are_no_object() -> None:
    assert parsed([b"x", b'{"user":1}'], pa.schema([SCHEMA.field(CORRUPT)])) == [
        {CORRUPT: "x"},
        {},
    ]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (pa.field("m", pa.map_(pa.string(), pa.int64())), "m has a type that JSON cannot hold"),
        (pa.field("s", pa.struct([("m", pa.map_(pa.string(), pa.int64()))])), "s has a type"),
        (pa.field("i", pa.duration("us")), "i has a type that JSON cannot hold"),
        (pa.field("t", pa.time64("us")), "t has a type that JSON cannot hold"),
        (pa.field(CORRUPT, pa.binary()), "make it a string"),
        (pa.field(CORRUPT_FIELDS, pa.string()), "make it an array of strings"),
    ],
)
def test_a_type_that_is_not_read_from_json_is_refused(field: pa.Field, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        check_fields(pa.schema([field]))


def test_fields_of_values_are_beside_columns_of_the_record() -> None:
    data = bytes(encode_batch([b'{"user":7}', b"x"], keys=[b"k", None], timestamps_ms=0))
    fetch: RecordBatch = RecordBatch(TopicPartition("t", 3), data, base_offset=0, next_offset=2)
    (batch,) = arrow_batches(
        fetch, columns=("user", "partition", "key"), end_offset=2, json_fields=pa.schema([USER])
    )
    assert batch.to_pylist() == [
        {"user": 7, "partition": 3, "key": b"k"},
        {"user": None, "partition": 3, "key": None},
    ]
