"""The columns of a frame for a write: those of Spark's Kafka sink, and their types.

Owns the check before any row is sent. Knows types by their Spark names only. As in Kafka's sink,
other columns, such as `offset` and `timestamp` of a frame that was read, are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

from millrace.errors import SchemaError

HEADERS = "array<struct<key:string,value:binary>>"
_BYTES = ("binary", "string")
_KINDS = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": (HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
}
"""The Spark types that each column may have."""
_ADVICE = {
    "value": "to_json(struct(...)) or cast(... as string) makes one of other columns",
    "key": "cast it to string, or to binary",
    "headers": "array(struct('name' as key, cast('text' as binary) as value)) makes one",
    "topic": "cast it to string",
    "partition": "cast it to int",
}


def check_frame(fields: Iterable[tuple[str, str]], *, topic: str | None) -> tuple[str, ...]:
    """The columns that become records, from `(name, Spark type)` of all; `topic` is the option.

    Raises `SchemaError` for a missing `value`, for a missing `topic` without the option, for a
    column of the wrong type, and for a duplicate.
    """
    given = list(fields)
    names = [name for name, _ in given]
    for name, kind in given:
        if name not in _KINDS:
            continue
        if names.count(name) > 1:
            raise SchemaError(f"{name}: two columns have this name; drop one, or rename it")
        if kind.split(" collate ")[0] not in _KINDS[name]:
            wanted = " or ".join(_KINDS[name])
            raise SchemaError(f"{name}: must be {wanted}, and is {kind}; {_ADVICE[name]}")
    if "value" not in names:
        raise SchemaError(f"value: {_missing('value', names)}; {_ADVICE['value']}")
    if "topic" not in names and topic is None:
        raise SchemaError(
            f"topic: {_missing('topic', names)}, nor an option; "
            'name the topic of all rows with .option("topic", ...)'
        )
    unused = {"topic"} if topic is not None else set()
    return tuple(name for name in names if name in _KINDS.keys() - unused)


def _missing(name: str, names: list[str]) -> str:
    """The message for a missing column, with the columns of the frame."""
    return f"there is no such column, only {', '.join(names) or 'none'}"
