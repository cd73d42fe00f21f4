"""The columns of a read, as Spark names their types.

Owns the constant schema, which needs no broker, and the check of a schema that a user gives to
read fewer columns. Knows types by their Spark names only; `arrow_columns` has the Arrow types.
"""

from __future__ import annotations

from collections.abc import Iterable

from millrace_spark.errors import SchemaError

COLUMNS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Name and Spark type of every column, in order."""

DDL = ", ".join(f"{name} {type_name}" for name, type_name in COLUMNS.items())
"""The constant schema, as Spark parses it."""


def check_columns(fields: Iterable[tuple[str, str, bool]]) -> tuple[str, ...]:
    """The names of the columns wanted, from `(name, Spark type, nullable)` in the user's order.

    Raises `SchemaError` for a column there is not, another type than its own, a column that is
    declared not to be null, and one that is named twice.
    """
    wanted: list[str] = []
    for name, type_name, is_nullable in fields:
        if name not in COLUMNS:
            raise SchemaError(f"schema: no column {name!r}; there are {DDL}")
        if type_name != COLUMNS[name]:
            raise SchemaError(
                f"schema: {name} is {COLUMNS[name]} and not {type_name}; read it as it is, "
                f'and convert it with .withColumn("{name}", ...)'
            )
        if not is_nullable:
            raise SchemaError(f"schema: {name} is declared not to be null; leave it nullable")
        if name in wanted:
            raise SchemaError(f"schema: {name} is named twice")
        wanted.append(name)
    if not wanted:
        raise SchemaError(f"schema: name at least one column of {DDL}")
    return tuple(wanted)
