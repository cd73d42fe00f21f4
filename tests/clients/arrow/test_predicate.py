"""A predicate restricts ranges to the records that it may be true for, whatever it looks like."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._arrow.columns import TYPES
from millrace._arrow.predicate import Predicate

SCHEMA = pa.schema([*TYPES.items(), ("carrier", pa.string())])
OFFSET, PARTITION, TIME = ds.field("offset"), ds.field("partition"), ds.field("timestamp")


def at(time_ms: int) -> pa.Scalar:
    return pa.scalar(time_ms * 1000, TYPES["timestamp"])


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (None, (0, 100)),
        (OFFSET >= 5, (5, 100)),
        (OFFSET > 5, (6, 100)),
        ((OFFSET >= 5) & (OFFSET < 10), (5, 10)),
        (OFFSET == 99, (99, 100)),
        (OFFSET == 100, (0, 0)),
        (OFFSET.isin([7, 9]), (7, 10)),
        (~(OFFSET < 5), (5, 100)),
        ((OFFSET == 3) | (OFFSET == 40), (3, 41)),
        ((OFFSET == 3) & (ds.field("carrier") == "UA"), (3, 4)),
        ((OFFSET == 3) | (ds.field("carrier") == "UA"), (0, 100)),
        ((OFFSET == 3) | (PARTITION == 1), (3, 4)),
        (PARTITION == 1, (0, 0)),
        (PARTITION != 1, (0, 100)),
        (OFFSET * 2 == 6, (0, 100)),
    ],
)
def test_offsets_are_those_that_a_predicate_may_be_true_for(
    expression: Any, wanted: tuple[int, int]
) -> None:
    assert Predicate(expression, SCHEMA).restrict(0, 0, 100) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (at(1000) <= TIME, 1000),
        ((at(1000) <= TIME) & (at(2000) > TIME), 1000),
        (at(1000) == TIME, 1000),
        (at(2000) > TIME, 0),
        ((at(1000) <= TIME) | (OFFSET == 3), 0),
        ((at(1000) <= TIME) & (OFFSET >= 3), 1000),
        (OFFSET == 3, 0),
        (None, 0),
    ],
)
def test_a_time_restricts_the_beginning_of_a_read(expression: Any, wanted: int) -> None:
    assert Predicate(expression, SCHEMA).earliest_ms() == wanted


COMPARISONS = st.builds(
    lambda column, operator, number: operator(column, number),
    st.sampled_from([OFFSET, PARTITION]),
    st.sampled_from(
        [
            *(pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal),
            lambda column, number: column.isin([number, number + 3]),
        ]
    ),
    st.integers(0, 12),
)
PREDICATES = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=6,
)


@given(PREDICATES)
def test_no_record_that_a_predicate_selects_is_left_out(expression: Any) -> None:
    predicate = Predicate(expression, SCHEMA)
    for partition in range(3):
        first, last = predicate.restrict(partition, 0, 12)
        rows = pa.table(
            {
                "partition": pa.array([partition] * 12, pa.int32()),
                "offset": pa.array(range(12), pa.int64()),
            }
        )
        selected = rows.filter(expression).column("offset").to_pylist()
        assert all(first <= offset < last for offset in selected)
