"""The columns of a topic as a table: those of its records, and typed fields of its JSON values.

Owns their names. A record's column with the name of a field is called `record_NAME`; SQL ignores
case, so names that differ in case only are the same. `columns` decodes, `json_values` parses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from millrace._arrow.columns import TYPES, arrow_batches
from millrace._arrow.json_columns import Corruption
from millrace._arrow.json_values import check_fields, read_json
from millrace.errors import SchemaError
from millrace.records import RecordBatch, TopicPartition

NO_FIELDS = pa.schema([])


class CorruptField(NamedTuple):
    """A field that did not fit its type in `records` records, and the first of these."""

    records: int
    where: TopicPartition
    offset: int
    text: str
    """The beginning of the field's text."""


@dataclass(slots=True)
class CorruptValues:
    """What did not fit in the values that were read, and is null."""

    records: int = 0
    fields: dict[str, CorruptField] = field(default_factory=dict)
    """By the name of the field; empty for values that are no JSON object."""

    def add(self, found: Corruption, where: TopicPartition, offsets: pa.Array) -> None:
        """Adds what was found in a batch of a partition."""
        self.records += len(found.rows)
        for name, example in found.fields.items():
            known = self.fields.get(name)
            if known is None:
                offset = offsets[example.row].as_py()
                self.fields[name] = CorruptField(example.count, where, offset, example.text)
            else:
                self.fields[name] = known._replace(records=known.records + example.count)


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
        self, fetch: RecordBatch[bytes, bytes], *, end_offset: int, corrupt: CorruptValues
    ) -> Iterator[pa.RecordBatch]:
        """The records of a fetch before `end_offset`; adds to `corrupt`.

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
            values = batch
            if parsed.names:
                found = read_json(batch.column("value"), parsed)
                values = found.batch
                if found.corruption.rows:
                    corrupt.add(found.corruption, fetch.where, batch.column("offset"))
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column(self._own[name]) if name in self._own else values.column(name)
                    for name in self.names
                ],
                schema=self.schema,
            )
