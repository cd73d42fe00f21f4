"""Records as one sequence per field: what decoding gives before anybody asks for tuples.

Owns the shape alone. A list of values is found at the speed of slicing, `zip` makes tuples of it
at the speed of C, and a caller that needs only the values pays for nothing else.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from millrace_protocol.records.encode import Record

NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()


class Columns:
    """Consecutive records of one partition, field by field; all columns are equally long.

    `offsets` is a `range` where none is missing. Made with a null key, a null value and no headers
    in every row, for `decode` to fill in.
    """

    __slots__ = ("headers", "keys", "offsets", "timestamps_ms", "values")

    def __init__(self, offsets: Sequence[int]) -> None:
        count = len(offsets)
        self.offsets = offsets
        self.timestamps_ms = [0] * count
        self.keys: list[bytes | None] = [None] * count
        self.values: list[bytes | None] = [None] * count
        self.headers = [NO_HEADERS] * count

    def __len__(self) -> int:
        return len(self.offsets)

    def records(self) -> Iterator[Record]:
        """Iterate over `(offset, timestamp_ms, key, value, headers)`."""
        return zip(
            self.offsets, self.timestamps_ms, self.keys, self.values, self.headers, strict=True
        )

    def drop_before(self, offset: int) -> None:
        """Leave out the records before `offset`."""
        count = bisect_left(self.offsets, offset)
        if count:
            self.offsets = self.offsets[count:]
            for column in (self.timestamps_ms, self.keys, self.values, self.headers):
                del column[:count]

    def truncate(self, count: int) -> None:
        """Keep the first `count` records; iterators over the lists see their new end."""
        self.offsets = self.offsets[:count]
        for column in (self.timestamps_ms, self.keys, self.values, self.headers):
            del column[count:]
