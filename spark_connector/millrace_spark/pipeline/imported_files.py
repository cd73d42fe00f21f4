"""Recognition of the files of an import, and the types to read them with.

Owns the decision whether rows are imported records: the files must have exactly the columns that
an import without a schema writes. Knows types by their Spark names only.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from millrace_spark.pipeline.file_formats import columns_of
from millrace_spark.pipeline.partition_paths import DERIVED
from millrace_spark.reading.schema import COLUMNS

_TEXTS = dict.fromkeys(COLUMNS, "string")
_NUMBERS = dict.fromkeys(("partition", "offset", "timestampType"), "bigint")
_HEADERS = "array<struct<key:string,value:string>>"
_KINDS = {
    "parquet": COLUMNS,
    "orc": COLUMNS,
    "csv": _TEXTS,
    "json": _TEXTS | _NUMBERS | {"headers": _HEADERS},
}
"""The types that Spark infers from the files of each format."""


def import_types(
    file_format: str, found: Mapping[str, str], directories: Container[str]
) -> dict[str, str] | None:
    """The Spark types to read these columns with, in their order; None if no import wrote them.

    `found` has the types that Spark infers, and `directories` the columns in paths.

    >>> import_types("parquet", {"key": "string", "value": "string", "amount": "int"}, ())
    """
    written = columns_of(file_format, tuple(COLUMNS))
    made = [name for name in DERIVED if name in directories]
    if sorted(found) != sorted([*written, *made]):
        return None
    types: dict[str, str] = {}
    for name, kind in found.items():
        if name in directories:
            # A text, because Spark would read 007 as a number.
            types[name] = "string"
            continue
        types[name] = _KINDS[file_format][name]
        # In JSON files without any headers, Spark infers a string.
        is_null = (file_format, name, kind) == ("json", "headers", "string")
        if kind != types[name] and not is_null:
            return None
    return types
