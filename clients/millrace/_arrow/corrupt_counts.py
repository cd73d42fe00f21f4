"""Counts of values that their columns cannot hold, over batches, with an example of each field.

`json_values` finds them in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from millrace._arrow.json_columns import Corruption

FIELDS_MAX = 100
"""Fields of which an example is kept."""


class FieldExample(NamedTuple):
    """How many values of a field are corrupt, and where the first of them is."""

    times: int
    where: str
    """The partition, as `clicks-0`."""
    offset: int
    text: str
    """The beginning of the value."""


@dataclass(frozen=True, slots=True)
class CorruptCounts:
    """What is corrupt in the records of a range, of a batch, or of a run."""

    records: int = 0
    """Records with at least one value that is corrupt."""
    fields: int = 0
    """Fields that are null because their values are corrupt, of records that are objects."""
    examples: Mapping[str, FieldExample] = field(default_factory=dict)
    """By the name of the field; the empty name is for values that are no object."""

    def added(self, corruption: Corruption, where: str, offsets: pa.Int64Array) -> CorruptCounts:
        """With what of a batch did not fit; `offsets` has the offset of each row."""
        if not corruption.rows:
            return self
        return self.merged(
            CorruptCounts(
                len(corruption.rows),
                corruption.field_count,
                {
                    name: FieldExample(each.times, where, offsets[each.row].as_py(), each.text)
                    for name, each in corruption.fields.items()
                },
            )
        )

    def merged(self, other: CorruptCounts) -> CorruptCounts:
        """The sum; the examples of `self` come first."""
        examples = dict(self.examples)
        for name, each in other.examples.items():
            known = examples.get(name)
            if known is not None:
                examples[name] = known._replace(times=known.times + each.times)
            elif len(examples) < FIELDS_MAX:
                examples[name] = each
        return CorruptCounts(self.records + other.records, self.fields + other.fields, examples)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        examples = {name: list(each) for name, each in self.examples.items()}
        return {"records": self.records, "fields": self.fields, "examples": examples}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CorruptCounts:
        """From a document. Raises `KeyError`, `TypeError` and `ValueError` for a damaged one."""
        examples = {name: FieldExample(*each) for name, each in document["examples"].items()}
        return cls(int(document["records"]), int(document["fields"]), examples)


NOTHING_CORRUPT = CorruptCounts()
