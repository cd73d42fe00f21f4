"""The result of a query: columns, and batches of rows as they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa


class Rows(NamedTuple):
    """A result that is read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
