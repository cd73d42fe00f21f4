"""Translation of Spark's filters to conditions.

Owns the list of supported filters. Unsupported ones, and those that ranges express partially, go
back to Spark, which applies them to every row.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from millrace_spark.reading.filter_pushdown import Condition, Operator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPERATORS: dict[type, Operator] = {
    EqualTo: "in",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
_NEGATED: dict[Operator, Operator] = {
    "in": "not in",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
_TYPES: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}


def translate(filters: Iterable[Filter]) -> tuple[tuple[Condition, ...], list[Filter]]:
    """The conditions that ranges express, and the filters that Spark has to apply."""
    conditions: list[Condition] = []
    remaining: list[Filter] = []
    for given in filters:
        # These columns are never null.
        if isinstance(given, IsNotNull) and given.attribute in [(name,) for name in _TYPES]:
            continue
        condition = _condition(given)
        if condition is not None and condition.pushdown != "none":
            conditions.append(condition)
        if condition is None or condition.pushdown != "full":
            remaining.append(given)
    return tuple(conditions), remaining


# Any: the filters have no common base class with these attributes.
def _condition(given: Any) -> Condition | None:
    if isinstance(given, Not):
        inner = _condition(given.child)
        if inner is None:
            return None
        return Condition(inner.column, _NEGATED[inner.operator], inner.values)
    operator = _OPERATORS.get(type(given))
    if operator is None or len(given.attribute) != 1 or given.attribute[0] not in _TYPES:
        return None
    (column,) = given.attribute
    values = tuple(given.value) if isinstance(given, In) else (given.value,)
    if not values or not all(_is_of(value, _TYPES[column]) for value in values):
        return None
    if column == "timestamp":
        values = tuple((value - _EPOCH) // timedelta(microseconds=1) for value in values)
    return Condition(column, operator, values)


def _is_of(value: Any, kind: type) -> bool:
    if kind is datetime:
        return isinstance(value, datetime) and value.tzinfo is not None
    return isinstance(value, kind) and not isinstance(value, bool)
