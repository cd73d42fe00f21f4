"""The compiled reader and writer of records: `millrace-native`, where that is installed.

Owns the choice. Everything works without it, more slowly. It reads sound records of batches without
compression alone, and writes columns of bytes alone. All others, and every fault, are left to
`decode` and `encode`, which name it: so both give the same bytes, records and errors. Its source is
`protocol/native`.
"""

from typing import Any, Final, Protocol

VERSION: Final = "0.2.0"
"""A library of another version is not used."""
BATCH_NUMBERS: Final = 8
"""What `read_fields` is told of a batch: where its records begin and end, their count, base offset,
last offset delta, base timestamp, whether the broker set the time, and that time."""
FIELDS: Final = 9
"""What it tells of a record: where the key begins, its size, where the value begins, its size,
where the headers begin, their count, where the record ends, offset, timestamp."""


class Compiled(Protocol):
    """The functions of the library; its source says what they do."""

    def read_records(
        self,
        buf: bytes | memoryview,
        position: int,
        end: int,
        row: int,
        offset_delta: int,
        base_timestamp: int,
        fixed_timestamp: int | None,
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[tuple[tuple[str, bytes | None], ...]],
        /,
    ) -> tuple[int, int]:
        """Fills rows; returns the first that is not filled, and where its record begins."""

    def read_fields(self, flat: memoryview, batches: Any, fields: Any, /) -> int:
        """Fills an array of `FIELDS` rows; returns how many batches are sound."""

    def gather(
        self, flat: memoryview, positions: Any, sizes: Any, offsets: Any, data: Any, /
    ) -> None:
        """Copies fields into `data`, one behind the other, and their bounds into `offsets`."""

    def encode_columns(
        self, values: Any, timestamps: Any, keys: Any, headers: Any, room: int, /
    ) -> tuple[bytearray, int, int] | None:
        """Returns `room` zeros and the records, the first time and the greatest."""


compiled: Compiled | None = None
try:
    import millrace_native
except ImportError:
    pass
else:
    if millrace_native.VERSION == VERSION:
        compiled = millrace_native
