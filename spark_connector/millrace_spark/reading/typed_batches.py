"""Fetches as Arrow batches of a record's own columns beside the fields of its value.

Owns which column is which: a field may have the name of a record's column, which then has another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from millrace._arrow.columns import arrow_batches
from millrace._arrow.json_columns import Corruption
from millrace._arrow.json_values import read_json
from millrace.records import RecordBatch


class TypedBatch(NamedTuple):
    """Rows, the offset of each, and what of their values did not fit."""

    batch: pa.RecordBatch
    offsets: pa.Int64Array
    corruption: Corruption


def typed_batches(
    fetch: RecordBatch[bytes, bytes],
    *,
    names: Sequence[str],
    own: Mapping[str, str],
    fields: pa.Schema,
    end_offset: int,
    late_times: Literal["refuse", "null"] = "refuse",
) -> Iterator[TypedBatch]:
    """The records of a fetch before `end_offset`, as batches of the columns `names`.

    `own` has the record's column for each name that is one; the others are `fields` of the values.
    Raises what `arrow_batches` does.
    """
    columns = tuple(dict.fromkeys((*own.values(), "value", "offset")))
    for batch in arrow_batches(
        fetch, columns=columns, end_offset=end_offset, late_times=late_times
    ):
        parsed = read_json(batch.column("value"), fields)
        arrays = [
            batch.column(own[name]) if name in own else parsed.batch.column(name) for name in names
        ]
        yield TypedBatch(
            pa.RecordBatch.from_arrays(arrays, names=list(names)),
            batch.column("offset"),
            parsed.corruption,
        )
