"""A predicate of a query, as bounds on the offsets and times of the records to read.

Arrow decides which records a predicate excludes: an offset range or a time range is a guarantee
about every record in it, and Arrow tells whether the predicate can be true under the guarantee, as
it does to leave out files of a dataset. So nothing here reads the predicate, and a range is left
out only if Arrow says that no record in it counts. Who asks applies the predicate to what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from millrace._arrow.columns import TYPES

TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, up to which a bound is looked for."""
_FORMAT = ds.IpcFileFormat()
_NO_FILE = pa.py_buffer(b"")


class Predicate:
    """An Arrow expression over the columns of `schema`; None is always true.

    `partition`, `offset` and `timestamp` are the names of these columns there.
    """

    def __init__(
        self,
        expression: Any,
        schema: pa.Schema,
        *,
        partition: str = "partition",
        offset: str = "offset",
        timestamp: str = "timestamp",
    ) -> None:
        self._expression = expression
        self._schema = schema
        self._partition = ds.field(partition)
        self._offset = ds.field(offset)
        self._timestamp = ds.field(timestamp)

    def restrict(self, partition: int, start: int, end: int) -> tuple[int, int]:
        """The part of the offsets `[start, end)` of a partition outside of which it is false.

        It may be true in this part only; the part may be empty.
        """
        if self._expression is None:
            return start, end

        def excludes(first: int, last: int) -> bool:
            return self._excludes(
                (self._partition == pa.scalar(partition, TYPES["partition"]))
                & (self._offset >= first)
                # Arrow knows no integers between two: `> 5` may be true for some `< 6`.
                & (self._offset <= last - 1)
            )

        if excludes(start, end):
            return start, start
        start = _last(lambda stop: excludes(start, stop), start, end)
        # The same from the other side: numbers rise as the excluded range at the end grows.
        return start, -_last(lambda negated: excludes(-negated, end), -end, -start)

    def earliest_ms(self) -> int:
        """A time in ms before which it is false; 0 if there is none."""
        if self._expression is None:
            return 0
        kind = TYPES["timestamp"]

        def excludes(time_ms: int) -> bool:
            return self._excludes(self._timestamp <= pa.scalar(time_ms * 1000 - 1, kind))

        return _last(excludes, 0, TIME_MS_MAX)

    def _excludes(self, guarantee: Any) -> bool:
        """Whether it is false for every record that the guarantee is true for."""
        fragment = _FORMAT.make_fragment(_NO_FILE, partition_expression=guarantee)
        guarded = ds.FileSystemDataset([fragment], self._schema, _FORMAT)
        return next(iter(guarded.get_fragments(filter=self._expression)), None) is None


def _last(is_excluded: Callable[[int], bool], low: int, high: int) -> int:
    """A number from `[low, high)` that is excluded, or `low`; the last one if they do not mix."""
    if not is_excluded(low + 1):
        return low
    while high - low > 1:
        middle = (low + high) // 2
        if is_excluded(middle):
            low = middle
        else:
            high = middle
    return low
