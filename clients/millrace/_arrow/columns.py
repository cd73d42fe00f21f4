"""Fetches as Arrow record batches with the columns and types of Spark's Kafka source.

Owns the Arrow types, the cut at the end of a range, and the size of a batch. Spark checks the
schema of the first batch only, and reads the buffers of the others without a check. So all batches
have the same schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace._arrow.json_values import parse_json
from millrace.errors import CorruptMessage
from millrace.records import RecordBatch, TopicPartition, corrupt
from millrace_protocol.records import CorruptBatch
from millrace_protocol.records.arrow import ArrowFetch, decoding_parts

ROWS_MAX = 10_000
"""Rows of one Arrow batch, as Spark's default."""
BATCH_BYTES_MAX = 1024 * 1024
"""Bytes of keys and values of one Arrow batch, estimated by the average row of a decoded part. A
larger row is a batch of its own. The JVM reads a batch after it has received it whole: with 2 MiB
it takes a tenth more CPU time for rows of 1 KiB."""
DECODED_RECORDS_MAX = 65_536
"""Records of a part that is decoded at once. Decoding a field costs one call for any number of
records, and memory for each of them."""
COMPRESSED_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of a part that is decoded at once, if batches of the fetch are compressed."""

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}
"""The Arrow type of every column of a record, in the order of Spark's Kafka source."""
_TIME_MS_MAX = (2**63 - 1) // 1000
"""The last time that microseconds in 64 bits can hold."""
_DECODED = {
    **{name: name for name in ("offset", "timestamp", "headers")},
    "timestampType": "is_log_append_time",
}
"""The decoder's column of each converted column. Other columns are constants, or are copied."""
_COPIED = ("key", "value")
"""Columns of the decoder that need no conversion; each may be as large as the fetch."""


def arrow_schema(columns: Sequence[str], json_fields: pa.Schema | None = None) -> pa.Schema:
    """The Arrow schema of these columns; all are nullable, as in the schema that Spark has."""
    return pa.schema(
        [
            pa.field(name, TYPES[name])
            if json_fields is None or name not in json_fields.names
            else json_fields.field(name)
            for name in columns
        ]
    )


def arrow_batches(
    fetch: RecordBatch[bytes, bytes],
    *,
    columns: Sequence[str],
    end_offset: int,
    json_fields: pa.Schema | None = None,
    late_times: Literal["refuse", "null"] = "refuse",
) -> Iterator[pa.RecordBatch]:
    """The records of a fetch before `end_offset`, in batches; decodes only these columns.

    Columns in `json_fields` are fields of the values, which are JSON objects. Raises
    `CorruptMessage` for bytes that fail their checks, and for a timestamp after the year 294246,
    which the column cannot hold, unless `late_times` is `null`. The batches before the corrupt one
    are returned first. Batches behind `end_offset` are not checked.
    """
    parts: Iterable[Sequence[int] | None] = (None,)
    if fetch.positions is not None:
        parts = decoding_parts(
            fetch.view,
            fetch.positions,
            end_offset=end_offset,
            records_max=DECODED_RECORDS_MAX,
            compressed_bytes_max=COMPRESSED_BYTES_MAX,
        )
    for positions in parts:
        yield from _part_batches(fetch, positions, columns, end_offset, json_fields, late_times)


def _part_batches(
    fetch: RecordBatch[bytes, bytes],
    positions: Sequence[int] | None,
    columns: Sequence[str],
    end_offset: int,
    json_fields: pa.Schema | None,
    late_times: Literal["refuse", "null"],
) -> Iterator[pa.RecordBatch]:
    """The records of the encoded batches that begin at these positions."""
    try:
        records = ArrowFetch(
            fetch.view,
            from_offset=fetch.base_offset,
            check_crc=False,  # the consumer has checked it
            positions=positions,
        )
    except CorruptBatch as error:
        raise corrupt(fetch.where, fetch.base_offset, error) from error
    start, end = np.searchsorted(records.offsets, (fetch.base_offset, end_offset)).tolist()
    if start >= end:
        return
    rows = _rows_per_batch(records, columns if json_fields is None else (*columns, "value"))
    schema = arrow_schema(columns, json_fields)
    parsed = () if json_fields is None else json_fields.names
    # Small columns are converted for all rows at once. Keys and values are copied batch by batch,
    # into the memory of the previous batch, and written while they are in the CPU's cache.
    constants = _constants(fetch.where, records, columns)
    whole = {
        name: _column(name, records, fetch.where, first=start, stop=end, late_times=late_times)
        for name in columns
        if name not in parsed and name not in _COPIED and name not in constants
    }
    for first in range(start, end, rows):
        stop = min(first + rows, end)
        arrays = {name: array.slice(first - start, stop - first) for name, array in whole.items()}
        arrays.update((name, array.slice(0, stop - first)) for name, array in constants.items())
        if json_fields is not None:
            objects = parse_json(records.column("value", first, stop), json_fields)
            arrays.update(zip(parsed, objects.columns, strict=True))
        arrays.update(
            (name, records.column(name, first, stop)) for name in columns if name not in arrays
        )
        yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)


def _rows_per_batch(records: ArrowFetch, columns: Sequence[str]) -> int:
    row_bytes = -(-records.size_bytes(columns) // max(1, records.count))
    return max(1, min(ROWS_MAX, BATCH_BYTES_MAX // max(1, row_bytes)))


def _constants(
    where: TopicPartition, records: ArrowFetch, columns: Sequence[str]
) -> dict[str, pa.Array]:
    """The columns with one value in all rows, in the length of the longest batch."""
    known: dict[str, str | int] = {"topic": where.topic, "partition": where.partition}
    if not records.has_log_append_time:
        known["timestampType"] = 0
    return {name: _repeated(name, known[name]) for name in columns if name in known}


@lru_cache(maxsize=4)
def _repeated(name: str, value: str | int) -> pa.Array:
    return pa.repeat(pa.scalar(value, TYPES[name]), ROWS_MAX)


def _column(
    name: str,
    records: ArrowFetch,
    where: TopicPartition,
    *,
    first: int,
    stop: int,
    late_times: Literal["refuse", "null"],
) -> Any:
    column = records.column(_DECODED[name], first, stop)
    if name == "timestamp" and late_times == "null":
        column = pc.if_else(pc.less_equal(column.cast(pa.int64()), _TIME_MS_MAX), column, None)
    try:
        found = column.cast(TYPES[name])
    except pa.ArrowInvalid as error:
        raise CorruptMessage(
            f"{where}: {name} has a value that its column cannot hold: {error}. Leave the column "
            'out; in Spark, with .schema("value binary, offset long")'
        ) from error
    return _null_where_empty(found) if name == "headers" else found


def _null_where_empty(lists: pa.ListArray) -> pa.ListArray:
    """Lists with null in place of empty ones, as Spark's Kafka source shows a record's headers.

    Copies the offsets of a slice, 4 bytes a row, and nothing else.
    """
    return pa.ListArray.from_arrays(
        pa.array(lists.offsets.to_numpy()),
        lists.values,
        type=lists.type,
        mask=pc.equal(pc.list_value_length(lists), 0),
    )
