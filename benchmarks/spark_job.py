"""What a Spark driver is told to do: one query of rows of a shape, from a source to a sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.spark_rows import COLUMNS, Shape

STOPPED = "stopped"
"""The last command, and the last response."""
WRITTEN_TOPIC = "written"
PAIRED = "paired"
ALONE = "alone"
PREBUILT = "prebuilt"
RECEIVED = "received"


@dataclass(frozen=True, slots=True)
class Job:
    """One query.

    `source` is `millrace`, `prebuilt`, `received` or `range`; `sink` is `noop`, `parquet`,
    `millrace`, which appends to `WRITTEN_TOPIC`, or `prebuilt`, which drops the rows. `columns` are
    what is read, or written.
    """

    source: str
    sink: str
    shape: Shape
    columns: tuple[str, ...] = COLUMNS

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Job:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        return cls(
            fields["source"],
            fields["sink"],
            Shape(**fields["shape"]),
            tuple(fields["columns"]),
        )
