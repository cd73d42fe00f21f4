"""Which files are an import's, by the columns that Spark finds in them, and how they are read."""

from __future__ import annotations

import pytest

from millrace_spark.pipeline.imported_files import import_types
from millrace_spark.reading.schema import COLUMNS

TEXTS = dict.fromkeys(COLUMNS, "string")
JSON = TEXTS | {
    "partition": "bigint",
    "offset": "bigint",
    "timestampType": "bigint",
    "headers": "array<struct<key:string,value:string>>",
}
CSV = {name: kind for name, kind in TEXTS.items() if name != "headers"}


@pytest.mark.parametrize(
    ("file_format", "found"), [("parquet", COLUMNS), ("orc", COLUMNS), ("json", JSON), ("csv", CSV)]
)
def test_an_import_is_known_by_all_of_its_columns(file_format: str, found: dict[str, str]) -> None:
    assert import_types(file_format, found, ()) == found
    assert import_types(file_format, found | {"amount": "int"}, ()) is None
    assert import_types(file_format, found | {"date": "string"}, ()) is None
    assert import_types(file_format, found | {"value": "int"}, ()) is None
    for name in found:
        others = {other: kind for other, kind in found.items() if other != name}
        assert import_types(file_format, others, ()) is None


def test_directories_are_read_as_the_text_they_are() -> None:
    in_files = {name: kind for name, kind in COLUMNS.items() if name not in ("key", "topic")}
    found = in_files | {"topic": "date", "date": "date", "hour": "int", "key": "double"}
    types = import_types("parquet", found, {"topic", "date", "hour", "key"})
    texts = {"topic": "string", "date": "string", "hour": "string", "key": "string"}
    assert types == in_files | texts
    assert list(types) == list(found)
    assert import_types("parquet", found, {"topic", "date", "hour"}) is None


def test_headers_that_no_record_of_json_has_are_headers_nevertheless() -> None:
    assert import_types("json", JSON | {"headers": "string"}, ()) == JSON
    assert import_types("parquet", COLUMNS | {"headers": "string"}, ()) is None
