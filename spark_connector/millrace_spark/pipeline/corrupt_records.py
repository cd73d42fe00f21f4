"""Records with values that their columns cannot hold: their counts, examples, and the limit.

Owns the counting over ranges and batches, and the sentences about it. `millrace._arrow` finds the
values. Knows no files and no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from millrace._arrow.json_columns import Corruption

FIELDS_MAX = 100
"""Fields of which an example is kept."""
WARNINGS_MAX = 10
"""Fields that the warnings about a batch name."""
_LIMIT = re.compile(r"([0-9]{1,18})(\.[0-9]{1,6})?(%?)")


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


def total(counts: Iterable[CorruptCounts]) -> CorruptCounts:
    """The sum."""
    found = NOTHING_CORRUPT
    for each in counts:
        found = found.merged(each)
    return found


@dataclass(frozen=True, slots=True)
class CorruptLimit:
    """The most corrupt records of a batch; by default not all of the first one of a directory."""

    records: int | None = None
    percent: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> CorruptLimit:
        """`N` or `N%`; None is the default. Raises `ConfigError`.

        >>> CorruptLimit.parse("5%"), CorruptLimit.parse("0")
        (CorruptLimit(records=None, percent=5.0), CorruptLimit(records=0, percent=None))
        """
        if text is None:
            return cls()
        found = _LIMIT.fullmatch(text.strip())
        if found is None or (found[2] and not found[3]):
            raise ConfigError(f"--max-corrupt: {text!r} is neither a number of records nor N%")
        if not found[3]:
            return cls(records=int(found[1]))
        percent = float(found[1] + (found[2] or ""))
        if percent > 100:
            raise ConfigError(f"--max-corrupt: {text!r} is more than 100%")
        return cls(percent=percent)

    def excess(self, corrupt: CorruptCounts, records: int, *, is_first: bool) -> str | None:
        """Why a batch of so many records may not be imported; None if it may."""
        if not corrupt.records:
            return None
        if self.records is not None:
            limit, is_over = f"{self.records:,}", corrupt.records > self.records
        elif self.percent is not None:
            limit, is_over = f"{self.percent:g}%", corrupt.records > records * self.percent / 100
        else:
            limit, is_over = "not all", is_first and corrupt.records == records
        if not is_over:
            return None
        example = _sentence(*next(iter(corrupt.examples.items())))
        return (
            f"{share(corrupt.records, records)}, and --max-corrupt is {limit}: {example}. Nothing "
            "was imported. Correct --schema, or set --max-corrupt 100%"
        )


def share(corrupt: int, records: int) -> str:
    """How many of so many records are corrupt.

    >>> share(1, 3)
    '1 of 3 records has a corrupt value'
    """
    have = "has a corrupt value" if corrupt == 1 else "have corrupt values"
    return f"{corrupt:,} of {records:,} record{'' if records == 1 else 's'} {have}"


def warnings(corrupt: CorruptCounts, records: int) -> Iterator[str]:
    """Sentences about what is corrupt in so many records."""
    if not corrupt.records:
        return
    text = "its text" if corrupt.records == 1 else "their texts"
    yield f"{share(corrupt.records, records)}; _corrupt_record has {text}"
    for name, example in list(corrupt.examples.items())[:WARNINGS_MAX]:
        yield _sentence(name, example)
    if len(corrupt.examples) > WARNINGS_MAX:
        yield f"{len(corrupt.examples) - WARNINGS_MAX} more fields have corrupt values"


def _sentence(name: str, example: FieldExample) -> str:
    is_one = example.times == 1
    place = f"{'' if is_one else 'the first is '}at {example.where} offset {example.offset}"
    values = f"{example.times:,} value{'' if is_one else 's'}"
    if name:
        matter = f"{values} of {name} {'does' if is_one else 'do'} not fit its type"
    else:
        matter = f"{values} {'is no JSON object' if is_one else 'are no JSON objects'}"
    return f"{matter}, {place}: {example.text!r}"
