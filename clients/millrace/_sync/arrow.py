"""A topic as Arrow record batches, for code without an event loop.

Owns the scan of ranges: fetches come from the loop's thread, columns are made in the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from millrace._arrow.corrupt_counts import NOTHING_CORRUPT
from millrace._arrow.offset_ranges import Ranges
from millrace._arrow.table_columns import TableColumns
from millrace._range_reader import Bounds, RangeReader, plan
from millrace._sync.blocking_client import BlockingClient
from millrace._sync.loops import loop_thread
from millrace.config import ClientOptions, Servers
from millrace.errors import Closed


class RangeScan(BlockingClient):
    """One pass over ranges, connected while `batches` runs."""

    def __init__(
        self,
        servers: Servers,
        ranges: Ranges,
        table: TableColumns,
        options: ClientOptions,
        *,
        earliest_ms: int = 0,
    ) -> None:
        self.reader = RangeReader(servers, ranges, options=options, earliest_ms=earliest_ms)
        self.corrupt = NOTHING_CORRUPT
        self._table = table
        super().__init__(self.reader)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records, in batches. Raises the errors of a consumer, and `CorruptMessage`."""
        try:
            self.start()
            while (fetch := self._run(self.reader.next_fetch())) is not None:
                batches = self._table.batches(fetch.records, end_offset=fetch.end_offset)
                for rows, corrupt in batches:
                    self.corrupt = self.corrupt.merged(corrupt)
                    yield rows
                del batches
                del fetch
        finally:
            # A reader that was not read to its end may be dropped while Python shuts down.
            with suppress(Closed):
                self.close()


def planned(servers: Any, bounds: Bounds, options: ClientOptions) -> Ranges:
    """`plan` without a loop."""
    return loop_thread().run(plan(servers, bounds, options))


def open_reader(
    bounds: Bounds, table: TableColumns, servers: Servers, options: ClientOptions
) -> pa.RecordBatchReader:
    """A reader of the records between two bounds, which are fixed now."""
    scan = RangeScan(servers, planned(servers, bounds, options), table, options)
    return pa.RecordBatchReader.from_batches(table.schema, scan.batches())
