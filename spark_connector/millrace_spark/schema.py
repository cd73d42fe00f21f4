"""The columns of a read, as Spark names their types.

Owns the constant schema, which needs no broker, and the check of a schema that a user gives to
read fewer columns. Knows types by their Spark names only; `arrow_columns` has the Arrow types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace_spark.errors import OptionError, SchemaError
from millrace_spark.options import ReadOptions, parse_read_options

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
    """The columns of such a read: all, but `headers` only if asked for."""
    return {
        name: kind for name, kind in COLUMNS.items() if options.include_headers or name != "headers"
    }


def ddl(columns: Mapping[str, str]) -> str:
    """Columns as Spark parses a schema."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def schema_of(options: Mapping[str, str]) -> str:
    """The schema of a read that names no columns; Spark does not say yet if it is a stream.

    Raises `OptionError` for options that neither a batch nor a stream can have, and for a format
    of values that needs a schema.
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


def check_columns(fields: Iterable[tuple[str, str, bool]], options: ReadOptions) -> tuple[str, ...]:
    """The names of the columns wanted, from `(name, Spark type, nullable)` in the user's order.

    With `valueFormat=json`, columns of other names are fields of the values. Raises `SchemaError`
    for a column there is not, another type than its own, a column that is declared not to be
    null, and one that is named twice.
    """
    there = columns_of(options)
    wanted: list[str] = []
    for name, kind, is_nullable in fields:
        if name in COLUMNS:
            _check_type(name, kind, options)
        elif options.value_format != "json":
            raise SchemaError(f"schema: no column {name!r}; there are {ddl(there)}")
        if not is_nullable:
            raise SchemaError(f"schema: {name} is declared not to be null; leave it nullable")
        if name in wanted:
            raise SchemaError(f"schema: {name} is named twice")
        wanted.append(name)
    if not wanted:
        raise SchemaError(f"schema: name at least one column of {ddl(there)}")
    return tuple(wanted)


def _check_type(name: str, kind: str, options: ReadOptions) -> None:
    if name not in columns_of(options):
        raise SchemaError(f"schema: {name} is there with includeHeaders only; set it to true")
    if kind == COLUMNS[name]:
        return
    if options.value_format == "json":
        raise SchemaError(
            f"schema: {name} is the record's own, {COLUMNS[name]}, and not {kind}; for a field of "
            "that name in the values, read value as it is and parse it with from_json"
        )
    raise SchemaError(
        f"schema: {name} is {COLUMNS[name]} and not {kind}; read it as it is, "
        f'and convert it with .withColumn("{name}", ...)'
    )
