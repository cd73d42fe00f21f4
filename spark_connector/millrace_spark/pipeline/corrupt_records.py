"""Records with values that their columns cannot hold: the limit of a run, and the sentences.

`millrace._arrow` finds and counts the values. Knows no files and no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millrace._arrow.corrupt_counts import NOTHING_CORRUPT, CorruptCounts, FieldExample
from millrace.errors import ConfigError

WARNINGS_MAX = 10
"""Fields that the warnings about a batch name."""
_LIMIT = re.compile(r"([0-9]{1,18})(\.[0-9]{1,6})?(%?)")


def total(counts: Iterable[CorruptCounts]) -> CorruptCounts:
    """The sum."""
    found = NOTHING_CORRUPT
    for each in counts:
        found = found.merged(each)
    return found


@dataclass(frozen=True, slots=True)
class CorruptLimit:
    """The most corrupt records of a batch; by default not all of the first one of a directory.

    An aggregation has no limit by default: it leaves nothing behind that is wrong.
    """

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

    def exceeded(self, corrupt: int, records: int, *, is_first: bool = False) -> str | None:
        """The limit in words, if so many corrupt ones of so many records are over it."""
        if self.records is not None:
            limit, is_over = f"{self.records:,}", corrupt > self.records
        elif self.percent is not None:
            limit, is_over = f"{self.percent:g}%", corrupt > records * self.percent / 100
        else:
            limit, is_over = "not all", is_first and 0 < corrupt == records
        return limit if is_over else None

    def excess(self, corrupt: CorruptCounts, records: int, *, is_first: bool) -> str | None:
        """Why a batch of so many records may not be imported; None if it may."""
        limit = self.exceeded(corrupt.records, records, is_first=is_first)
        if limit is None:
            return None
        example = example_sentence(*next(iter(corrupt.examples.items())))
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
        yield example_sentence(name, example)
    if len(corrupt.examples) > WARNINGS_MAX:
        yield f"{len(corrupt.examples) - WARNINGS_MAX} more fields have corrupt values"


def example_sentence(name: str, example: FieldExample) -> str:
    """What is corrupt in a field, and where; an empty name is for values that are no object."""
    is_one = example.times == 1
    place = f"{'' if is_one else 'the first is '}at {example.where} offset {example.offset}"
    values = f"{example.times:,} value{'' if is_one else 's'}"
    if name:
        matter = f"{values} of {name} {'does' if is_one else 'do'} not fit its type"
    else:
        matter = f"{values} {'is no JSON object' if is_one else 'are no JSON objects'}"
    return f"{matter}, {place}: {example.text!r}"
