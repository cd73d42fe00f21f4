"""The columns of a read and their Spark types.

Owns the constant schema, which needs no broker, and the check of a user's schema, which selects
columns. Knows types by their Spark names only; `millrace._arrow.columns` has the Arrow types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace.errors import SchemaError
from millrace_spark.errors import OptionError
from millrace_spark.options.read_options import ReadOptions, parse_read_options

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Name and Spark type of every column, in the order of Spark's Kafka source."""


def columns_of(options: ReadOptions) -> dict[str, str]:
    """The columns of a read; `headers` only with `includeHeaders`."""
    return {
        name: kind for name, kind in COLUMNS.items() if options.include_headers or name != "headers"
    }


def ddl(columns: Mapping[str, str]) -> str:
    """The columns as a schema that Spark parses."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def schema_of(options: Mapping[str, str]) -> str:
    """The schema of a read without a user's schema. Spark asks before it starts batch or stream.

    Raises `OptionError` for options that neither a batch nor a stream can have, and for a value
    format that needs a schema.
    """
    try:
        read = parse_read_options(options, is_stream=False)
    except OptionError as error:
        try:
            read = parse_read_options(options, is_stream=True)
        except OptionError:
            raise error from None
    if read.value_format == "json":
        raise OptionError(
            "valueFormat",
            'json needs the fields and their types: .schema("user long, page string")',
        )
    return ddl(columns_of(read))


def record_column(name: str, options: ReadOptions) -> str | None:
    """The record's column that a column of a user's schema is; None for a field of the values."""
    if not name.startswith(options.record_prefix):
        return None
    own = name.removeprefix(options.record_prefix)
    return own if own in COLUMNS else None


def check_columns(fields: Iterable[tuple[str, str, bool]], options: ReadOptions) -> tuple[str, ...]:
    """The names of the selected columns, from `(name, Spark type, nullable)` in the user's order.

    With `valueFormat=json`, columns of other names are fields of the values. Raises `SchemaError`
    for an unknown column, a wrong type, a column that is not nullable, and a duplicate.
    """
    known = columns_of(options)
    wanted: list[str] = []
    for name, kind, is_nullable in fields:
        own = record_column(name, options)
        if own is not None:
            _check_type(own, kind, options)
        elif options.value_format != "json":
            raise SchemaError(f"schema: no column {name!r}; there are {ddl(known)}")
        if not is_nullable:
            raise SchemaError(f"schema: {name} is declared NOT NULL; leave it nullable")
        if name in wanted:
            raise SchemaError(f"schema: {name} is named twice")
        wanted.append(name)
    if not wanted:
        raise SchemaError(f"schema: name at least one column of {ddl(known)}")
    return tuple(wanted)


def _check_type(name: str, kind: str, options: ReadOptions) -> None:
    if name not in columns_of(options):
        raise SchemaError(f"schema: {name} needs the option includeHeaders; set it to true")
    if kind == COLUMNS[name]:
        return
    if options.value_format == "json":
        raise SchemaError(
            f"schema: {name} is a column of the record, {COLUMNS[name]}, and not {kind}; for a "
            "field of that name in the values, set recordPrefix to record_, say: then the record's "
            f"column is record_{name}"
        )
    raise SchemaError(
        f"schema: {name} is {COLUMNS[name]} and not {kind}; read it with its own type, "
        f'and convert it with .withColumn("{name}", ...)'
    )
