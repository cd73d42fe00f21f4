"""A topic as Arrow record batches, without an object per record.

    async with read_arrow("flights", "localhost:9092", columns=["offset", "value"]) as reader:
        async for batch in reader:
            ...

Owns the public call and its life; `_range_reader` reads, `_arrow` makes the columns.
`millrace.sync.read_arrow` returns a `pyarrow.RecordBatchReader` instead. Needs `millrace[arrow]`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from types import TracebackType
from typing import Self, Unpack

import pyarrow as pa

from millrace._arrow.corrupt_counts import NOTHING_CORRUPT, CorruptCounts
from millrace._arrow.offset_ranges import End, Start
from millrace._arrow.table_columns import TableColumns
from millrace._range_reader import Bounds, RangeReader, plan
from millrace.config import ClientOptions, Servers
from millrace.errors import Closed

__all__ = ["ArrowReader", "CorruptCounts", "End", "Start", "read_arrow"]


class ArrowReader:
    """The records of a topic between two bounds; made by `read_arrow`, read once.

    Iterating returns batches of at most 10,000 rows and about 1 MiB of keys and values, in order
    within each partition. Reads ahead of the caller, in at most 24 MiB.
    """

    def __init__(
        self, bounds: Bounds, table: TableColumns, servers: Servers, options: ClientOptions
    ) -> None:
        self._bounds = bounds
        self._table = table
        self._servers = servers
        self._options = options
        self._reader: RangeReader | None = None
        self.corrupt = NOTHING_CORRUPT
        """Values that did not fit their types so far, and are null."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        return self._table.schema

    async def start(self) -> None:
        """Connects, and fixes the offsets to read.

        Raises `ConnectionFailed`, `UnknownTopicOrPartition`, and `ConfigError` for offsets that
        the log does not hold.
        """
        if self._reader is not None:
            raise Closed("start: this reader was started before; make a new one")
        ranges = await plan(self._servers, self._bounds, self._options)
        self._reader = RangeReader(self._servers, ranges, options=self._options)
        await self._reader.start()

    async def close(self) -> None:
        """Disconnects."""
        if self._reader is not None:
            await self._reader.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        if self._reader is None:
            raise Closed("the reader was not started: use `async with`, or await start()")
        while (fetch := await self._reader.next_fetch()) is not None:
            batches = self._table.batches(fetch.records, end_offset=fetch.end_offset)
            for rows, corrupt in batches:
                self.corrupt = self.corrupt.merged(corrupt)
                yield rows
            del fetch, batches

    async def read_all(self) -> pa.Table:
        """The rest of the records as one table, which must fit into memory."""
        return pa.Table.from_batches([batch async for batch in self], schema=self.schema)


def read_arrow(
    topic: str,
    servers: Servers = "localhost:9092",
    *,
    start: Start = "earliest",
    end: End = "latest",
    partitions: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    fields: pa.Schema | None = None,
    **options: Unpack[ClientOptions],
) -> ArrowReader:
    """A reader of the records of a topic between two bounds, as columns.

    The columns are those of the Spark connector: key, value, topic, partition, offset, timestamp,
    timestampType, headers. `fields` adds typed columns: the values are JSON objects with these
    fields, read as docs/typed-columns.md says. A record's column with the name of a field is called
    `record_NAME`. `columns` names those to read, in order. Raises `ConfigError`; opens no
    connection yet.
    """
    bounds = Bounds(topic, start, end, partitions)
    return ArrowReader(bounds, TableColumns(fields, columns), servers, options)
