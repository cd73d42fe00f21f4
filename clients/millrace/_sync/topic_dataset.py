"""A topic as a `pyarrow.dataset.Dataset`, which DuckDB and Polars query by themselves.

Owns the subclass and its scanner. A scan gets the columns and the predicate of a query. It decodes
these columns only, reads only offsets that the predicate may be true for, and applies the predicate
to each batch.
Source: "Extending PyArrow Datasets" in Arrow's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds

from millrace._arrow.offset_ranges import Ranges
from millrace._arrow.predicate import Predicate
from millrace._arrow.table_columns import TableColumns
from millrace._range_reader import Bounds
from millrace._sync.arrow import RangeScan, planned
from millrace.config import ClientOptions, Servers


class TopicDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The records of a topic between two bounds, which are fixed when it is made.

    Any number of queries, also at the same time; each scan has connections of its own. `scans` are
    those that were begun, for who watches the progress. `error` is the first one that ended a scan,
    because a query engine shows its text only.
    """

    def __init__(
        self, bounds: Bounds, fields: pa.Schema | None, servers: Servers, options: ClientOptions
    ) -> None:
        """Asks for the offsets. Raises what `read_arrow` does."""
        # The constructor of the base class is for Arrow's own datasets, and refuses.
        self._table = TableColumns(fields)
        self._servers = servers
        self._options = options
        self.ranges: Ranges = planned(servers, bounds, options)
        self.scans: list[RangeScan] = []
        self.error: BaseException | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._table.all

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - Arrow's name
        **options: Any,
    ) -> TopicScanner:
        """One pass over the records: these columns of those that `filter`, an expression, selects.

        Arrow's options for files have no effect.
        """
        if columns is not None and not all(isinstance(name, str) for name in columns):
            raise TypeError("columns: name columns; the dataset computes none")
        return TopicScanner(self, None if columns is None else list(columns), filter)

    def narrowed(self, predicate: Predicate) -> Ranges:
        """The parts of the ranges that a predicate may be true for."""
        found = {
            where: predicate.restrict(where.partition, start, end)
            for where, (start, end) in self.ranges.items()
        }
        return {where: (start, end) for where, (start, end) in found.items() if start < end}

    def scan(self, columns: Sequence[str], expression: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one pass."""
        try:
            # Arrow prints an expression with the names of its columns. A name too many costs time,
            # and one too few would be an error of Arrow's.
            text = "" if expression is None else str(expression)
            needed = [n for n in self._table.all.names if n in columns or n in text]
            table = self._table.select(needed)
            names = {own: table.own_name(own) for own in ("partition", "offset", "timestamp")}
            predicate = Predicate(expression, self._table.all, **names)
            found = RangeScan(
                self._servers,
                self.narrowed(predicate),
                table,
                self._options,
                earliest_ms=predicate.earliest_ms(),
            )
            self.scans.append(found)
            for batch in found.batches():
                if expression is None:
                    yield batch.select(columns)
                    continue
                selected = pa.Table.from_batches([batch]).filter(expression)
                yield from selected.select(columns).to_batches()
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self.error = self.error or error
            raise


class TopicScanner:
    """The calls of a `pyarrow.dataset.Scanner` that engines and users make.

    Not one of Arrow's: those read ahead in threads of their own, also when no one asks.
    """

    def __init__(self, dataset: TopicDataset, columns: list[str] | None, expression: Any) -> None:
        self._dataset = dataset
        self._columns = dataset.schema.names if columns is None else columns
        self._expression = expression
        self.dataset_schema: pa.Schema = dataset.schema
        self.projected_schema = pa.schema([dataset.schema.field(name) for name in self._columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as they are read."""
        rows = self._dataset.scan(self._columns, self._expression)
        return pa.RecordBatchReader.from_batches(self.projected_schema, rows)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they are read."""
        return self._dataset.scan(self._columns, self._expression)

    def to_table(self) -> pa.Table:
        """All rows."""
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """The first rows that are read."""
        found: list[pa.RecordBatch] = []
        with self.to_reader() as rows:
            for batch in rows:
                found.append(batch.slice(0, num_rows))
                num_rows -= found[-1].num_rows
                if num_rows <= 0:
                    break
        return pa.Table.from_batches(found, schema=self.projected_schema)


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"{name}: a topic has no files; query it with DuckDB or Polars")

    return refuse


# The base class would use a dataset of Arrow's that is not there.
for _name in ("filter", "get_fragments", "join", "join_asof", "replace_schema", "sort_by"):
    setattr(TopicDataset, _name, _refused(_name))
