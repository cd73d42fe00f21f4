"""The rows that every contestant of `spark` reads or writes, down to the last byte.

Owns what the value of a row is, and rows as Arrow batches, made once, that cost nothing to repeat.
Values are pieces of noise, so that Parquet can neither pack them nor keep them in a dictionary,
and a function of their number that SQL can evaluate as well as numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import pyarrow as pa

TIMESTAMP_MS = 1_700_000_000_000
TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
COLUMNS = tuple(TYPES)
ROWS_MAX = 10_000
BATCH_BYTES_MAX = 1 << 20
"""Bounds of an Arrow batch, those of the connector."""
NOISE_BYTES = 1 << 20
STRIDE = 7_919
"""From the beginning of a value to that of the next; prime, so that values repeat late."""
POOL_BYTES = 64 << 20
"""Of the values before they repeat: more than the caches of a core hold, since no source finds its
rows there, and more than Parquet puts in a dictionary."""
SEED = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows in equal parts, `partitions` of them; sizes in bytes."""

    rows: int
    value_bytes: int
    partitions: int

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> Shape:
        """The shape that a data source is given, whose options are the fields."""
        return cls(*(int(options[field.name]) for field in fields(cls)))

    @property
    def topic(self) -> str:
        """Where they are read from."""
        return f"rows-{self.value_bytes}"

    @property
    def part_rows(self) -> int:
        """Rows of one partition."""
        return self.rows // self.partitions

    @property
    def batch_rows(self) -> int:
        """Rows of one Arrow batch, as the connector makes them."""
        return min(ROWS_MAX, BATCH_BYTES_MAX // self.value_bytes)

    @property
    def pool_rows(self) -> int:
        """Rows of a partition before their values repeat, if they do; whole batches."""
        rows = min(POOL_BYTES // self.value_bytes, self.part_rows)
        return -(-rows // self.batch_rows) * self.batch_rows


def ddl(columns: Iterable[str]) -> str:
    """Columns as Spark parses a schema."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


@cache
def noise() -> bytes:
    """The bytes that values are pieces of."""
    made: bytes = np.random.default_rng(SEED).bytes(NOISE_BYTES)
    return made


def value_position(number: int, value_bytes: int) -> int:
    """Where in the noise the value of a row begins, by its number in the pool."""
    return number * STRIDE % (NOISE_BYTES - value_bytes)


def values(shape: Shape) -> list[bytes]:
    """The values of the pool in their order."""
    size, of = shape.value_bytes, noise()
    positions = (value_position(number, size) for number in range(shape.pool_rows))
    return [of[position : position + size] for position in positions]


@cache
def pool(shape: Shape) -> tuple[pa.Array, ...]:
    """The values of the pool, an array for each Arrow batch."""
    of = values(shape)
    rows = shape.batch_rows
    return tuple(
        pa.array(of[first : first + rows], pa.binary()) for first in range(0, len(of), rows)
    )


@cache
def prebuilt(shape: Shape, partition: int, columns: tuple[str, ...]) -> tuple[pa.RecordBatch, ...]:
    """All rows of a partition as Arrow batches, whose values share their memory."""
    # A driver that measures another checkout has this module too, and not this schema.
    from millrace._arrow.columns import arrow_schema

    schema = arrow_schema(columns)
    made = []
    values_of = pool(shape)
    for index, first in enumerate(range(0, shape.part_rows, shape.batch_rows)):
        count = min(shape.batch_rows, shape.part_rows - first)
        arrays = {
            "key": pa.nulls(count, pa.binary()),
            "value": values_of[index % len(values_of)].slice(0, count),
            "topic": pa.repeat(shape.topic, count),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
            "offset": pa.array(np.arange(first, first + count, dtype=np.int64)),
            "timestamp": pa.repeat(pa.scalar(TIMESTAMP_MS * 1000, pa.int64()), count),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
        }
        made.append(
            pa.RecordBatch.from_arrays(
                [arrays[name].cast(schema.field(name).type) for name in columns], schema=schema
            )
        )
    return tuple(made)
