"""Columns of keys go where every Kafka client puts each of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import partition_for_key
from millrace_protocol.records.murmur2 import HOT_KEY_BYTES_MAX, murmur2
from millrace_spark.writing.placement import ANY, groups, hashes, place

KEYS = st.none() | st.binary(max_size=20) | st.binary(min_size=250, max_size=260)


@given(st.lists(KEYS), st.integers(0, 5))
def test_the_hash_of_a_column_is_the_hash_of_each_key(
    keys: list[bytes | None], skipped: int
) -> None:
    column = pa.array(keys, pa.binary()).slice(min(skipped, len(keys)))
    found = hashes(column)
    for key, hashed in zip(column.to_pylist(), found.tolist(), strict=True):
        assert key is None or hashed == murmur2(key)


def test_keys_around_the_bound_of_those_hashed_together_are_hashed_alike() -> None:
    keys = [bytes(range(256)) * 2 for _ in range(1)]
    keys = [keys[0][:size] for size in range(HOT_KEY_BYTES_MAX - 5, HOT_KEY_BYTES_MAX + 6)]
    assert hashes(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]


@given(
    st.lists(st.tuples(KEYS, st.none() | st.integers(0, 6))), st.integers(min_value=1, max_value=7)
)
def test_a_named_partition_wins_over_the_key_and_a_row_with_neither_is_left_to_the_producer(
    rows: list[tuple[bytes | None, int | None]], count: int
) -> None:
    keys = pa.array([key for key, _ in rows], pa.binary())
    named = pa.array([partition for _, partition in rows], pa.int32())
    wanted = []
    for key, partition in rows:
        if partition is None:
            partition = ANY if key is None else partition_for_key(key, count)
        wanted.append(partition)
    assert place(keys, named, count).tolist() == wanted
    assert place(keys, None, count).tolist() == [
        ANY if key is None else partition_for_key(key, count) for key, _ in rows
    ]
    assert place(None, named, count).tolist() == [
        ANY if partition is None else partition for _, partition in rows
    ]


@given(st.lists(st.integers(-1, 5)))
def test_groups_hold_every_row_once_and_in_order(labels: list[int]) -> None:
    found = {label: rows.tolist() for label, rows in groups(np.array(labels, np.int64))}
    assert found == {
        label: [row for row, other in enumerate(labels) if other == label] for label in set(labels)
    }
