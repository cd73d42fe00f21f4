"""The columns of a topic as a table: those of its records, and typed fields of its JSON values.

Owns their names. A record's column with the name of a field is called `record_NAME`; SQL ignores
case, so names that differ in case only are the same. `columns` decodes, `json_values` parses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from millrace._arrow.columns import TYPES, arrow_batches
from millrace._arrow.corrupt_counts import NOTHING_CORRUPT, CorruptCounts
from millrace._arrow.json_values import check_fields, read_json
from millrace.errors import SchemaError
from millrace.records import RecordBatch

NO_FIELDS = pa.schema([])


class TableColumns:
    """The columns of a read, in order, and how they are made of a fetch.

    `fields` are columns of the values, and `columns` the names of those to read, or None for all.
    Raises `SchemaError`.
    """

    def __init__(
        self, fields: pa.Schema | None = None, columns: Sequence[str] | None = None
    ) -> None:
        self.fields = NO_FIELDS if fields is None else fields
        check_fields(self.fields)
        lower = [name.lower() for name in self.fields.names]
        for name in self.fields.names:
            if lower.count(name.lower()) > 1:
                raise SchemaError(f"fields: {name} is named twice; SQL ignores case")
        self._own = {f"record_{name}" if name.lower() in lower else name: name for name in TYPES}
        self.all = pa.schema(
            [*(pa.field(name, TYPES[own]) for name, own in self._own.items()), *self.fields]
        )
        self.names = tuple(self.all.names if columns is None else columns)
        for name in self.names:
            if name not in self.all.names:
                raise SchemaError(
                    f"columns: no column {name!r}; there are {', '.join(self.all.names)}"
                )
        self.schema = pa.schema([self.all.field(name) for name in self.names])

    def own_name(self, column: str) -> str:
        """The name of a record's column here."""
        return next(name for name, own in self._own.items() if own == column)

    def select(self, columns: Sequence[str]) -> TableColumns:
        """These of all columns."""
        return TableColumns(self.fields, columns)

    def batches(
        self, fetch: RecordBatch[bytes, bytes], *, end_offset: int
    ) -> Iterator[tuple[pa.RecordBatch, CorruptCounts]]:
        """The records of a fetch before `end_offset`, and what of each batch does not fit.

        Raises `CorruptMessage`.
        """
        parsed = pa.schema([self.fields.field(n) for n in self.names if n in self.fields.names])
        own = [self._own[name] for name in self.names if name in self._own]
        if parsed.names:
            own += ["value", "offset"]
        elif not own:
            # The number of rows is that of some column.
            own.append("partition")
        for batch in arrow_batches(fetch, columns=tuple(dict.fromkeys(own)), end_offset=end_offset):
            values, corrupt = batch, NOTHING_CORRUPT
            if parsed.names:
                found = read_json(batch.column("value"), parsed)
                values = found.batch
                corrupt = corrupt.added(found.corruption, str(fetch.where), batch.column("offset"))
            rows = pa.RecordBatch.from_arrays(
                [
                    batch.column(self._own[name]) if name in self._own else values.column(name)
                    for name in self.names
                ],
                schema=self.schema,
            )
            yield rows, corrupt
