"""Values of the public API: topic partitions, records, batches of records, receipts.

Owns the values a user holds. A record is a tuple with names, because a tuple is three times
cheaper to make than a slotted dataclass and an application makes millions. A `RecordBatch` keeps
the bytes as they came and decodes them when asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from millrace.errors import CorruptMessage
from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import Columns, CorruptBatch, count_records, decode_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes, covariant=True)
    V = TypeVar("V", default=bytes, covariant=True)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Headers = tuple[tuple[str, bytes | None], ...]
"""A record's headers, in order; a name may occur twice."""
Deserializer = Callable[[bytes], Any]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Receipt(NamedTuple):
    """Where an acked record is.

    `offset` is -1 with `acks=0`: no broker answers. `timestamp_ms` is the broker's where the
    topic uses it, else the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class _Fields(NamedTuple):
    """The fields of a record. A named tuple's attribute takes half the time of a property."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers


class Record(tuple[Any, ...], Generic[K, V]):
    """A record as read: `(topic, partition, offset, timestamp_ms, key, value, headers)`.

    `key` and `value` are bytes unless the consumer has deserializers; either may be None.

    >>> record = Record.of("clicks", 0, 17, 1_700_000_000_000, b"user-7", b"home")
    >>> record.key, record.offset
    (b'user-7', 17)
    """

    __slots__ = ()

    topic = _Fields.topic
    partition = _Fields.partition
    offset = _Fields.offset
    timestamp_ms = _Fields.timestamp_ms
    if TYPE_CHECKING:

        @property
        def key(self) -> K | None: ...

        @property
        def value(self) -> V | None: ...
    else:
        key = _Fields.key
        value = _Fields.value
    headers = _Fields.headers

    @classmethod
    def of(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: K | None,
        value: V | None,
        headers: Headers = (),
    ) -> Record[K, V]:
        """A record from its fields, as a test makes one."""
        return cls((topic, partition, offset, timestamp_ms, key, value, headers))

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record was read from."""
        return TopicPartition(self[0], self[1])

    @property
    def timestamp(self) -> datetime:
        """`timestamp_ms` as an aware datetime in UTC."""
        return datetime.fromtimestamp(self[3] / 1000, UTC)

    def __repr__(self) -> str:
        return (
            f"Record(topic={self[0]!r}, partition={self[1]}, offset={self[2]}, "
            f"timestamp_ms={self[3]}, key={self[4]!r}, value={self[5]!r}, headers={self[6]!r})"
        )


def make_records(
    columns: Columns, where: TopicPartition, offsets: Iterable[int]
) -> Iterator[Record[Any, Any]]:
    """The records of a partition, each made when it is taken; `offsets` are those of `columns`.

    A record that the caller does not keep is gone before the next is made, so that the garbage
    collector, which counts tuples that are alive, has no reason to run.
    """
    topic, partition = where
    return map(
        Record,
        zip(
            repeat(topic),
            repeat(partition),
            offsets,
            columns.timestamps_ms,
            columns.keys,
            columns.values,
            columns.headers,
            strict=False,
        ),
    )


def deserialize(
    columns: Columns,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
) -> tuple[int, Exception] | None:
    """Deserialize columns in place; a null stays None.

    Returns what a deserializer raised, and at which row, the first of both columns.
    """
    refused: tuple[int, Exception] | None = None
    try:
        for column, deserializer in (
            (columns.keys, key_deserializer),
            (columns.values, value_deserializer),
        ):
            if deserializer is not None:
                end = len(column) if refused is None else refused[0]
                refused = _deserialize_column(column, deserializer, end) or refused
        return refused
    finally:
        # The error refers to the frames it passed and to their callers: none may refer to it.
        del refused


def _deserialize_column(
    column: list[Any], deserializer: Deserializer, end: int
) -> tuple[int, Exception] | None:
    index = 0
    try:
        for index, data in enumerate(islice(column, end)):
            if data is not None:
                column[index] = deserializer(data)
    except Exception as error:  # the user's code may raise anything
        return index, error
    return None


def corrupt(where: TopicPartition, offset: int, error: CorruptBatch) -> CorruptMessage:
    """The error for bytes from a broker that fail their checks at or after `offset`."""
    return CorruptMessage(
        f"{where}: the broker's response from offset {offset} on is corrupt: {error.message}. "
        "The position has not moved; read again, or seek past it",
        code=ErrorCode.CORRUPT_MESSAGE,
    )


class RecordBatch(Generic[K, V]):
    """Consecutive records of one partition, still as bytes; decoded as they are iterated over.

    `base_offset` is where reading began and `next_offset` where it goes on; offsets between them
    may be missing in a compacted log. `positions` are where in `view` the encoded batches begin, if
    they were checked. `len()` reads headers; iterating twice decodes twice.
    """

    __slots__ = (
        "_data",
        "_key_deserializer",
        "_length",
        "_value_deserializer",
        "base_offset",
        "next_offset",
        "positions",
        "where",
    )

    def __init__(
        self,
        where: TopicPartition,
        data: bytes | memoryview,
        *,
        base_offset: int,
        next_offset: int,
        positions: Sequence[int] | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self.where = where
        self._data = data
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.positions = positions
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._length: int | None = None

    @property
    def topic(self) -> str:
        """The topic read from."""
        return self.where.topic

    @property
    def partition(self) -> int:
        """The partition read from."""
        return self.where.partition

    @property
    def data(self) -> bytes:
        """The encoded batches, one after the other; the first call may copy them."""
        if not isinstance(self._data, bytes):
            self._data = bytes(self._data)
        return self._data

    @property
    def view(self) -> memoryview:
        """The encoded batches where they lie; never a copy."""
        return memoryview(self._data)

    @property
    def last_offset(self) -> int:
        """Last offset covered, inclusive."""
        return self.next_offset - 1

    def __len__(self) -> int:
        if self._length is None:
            try:
                self._length = count_records(self._data, from_offset=self.base_offset)
            except CorruptBatch as error:
                raise corrupt(self.where, self.base_offset, error) from error
        return self._length

    def __iter__(self) -> Iterator[Record[K, V]]:
        return chain.from_iterable(self._chunks())

    def _chunks(self) -> Iterator[Iterator[Record[K, V]]]:
        for columns in self._columns():
            refused = deserialize(columns, self._key_deserializer, self._value_deserializer)
            if refused is not None:
                try:
                    raise refused[1]
                finally:
                    del refused
            yield make_records(columns, self.where, columns.offsets)

    def values(self) -> list[bytes | None]:
        """All values as bytes, the cheapest way to get at them."""
        return list(chain.from_iterable(columns.values for columns in self._columns()))

    def to_arrow(self) -> pa.RecordBatch:
        """The records as columns, keys and values as bytes, without an object per record.

        Needs `pip install 'millrace[arrow]'`.
        """
        try:
            from millrace_protocol.records.arrow import decode_arrow
        except ImportError as error:
            raise ImportError(
                "to_arrow() needs pyarrow and numpy: pip install 'millrace[arrow]'"
            ) from error
        try:
            return decode_arrow(
                self.view,
                from_offset=self.base_offset,
                check_crc=False,
                positions=self.positions,
            )
        except CorruptBatch as error:
            raise corrupt(self.where, self.base_offset, error) from error

    def _columns(self) -> Iterator[Columns]:
        # The CRC was checked when the batch was handed out.
        try:
            for columns, _ in decode_columns(
                self._data, from_offset=self.base_offset, check_crc=False
            ):
                yield columns
        except CorruptBatch as error:
            raise corrupt(self.where, self.base_offset, error) from error

    def __repr__(self) -> str:
        return (
            f"RecordBatch({self.where}, offsets [{self.base_offset}, {self.next_offset}), "
            f"{len(self._data)} bytes)"
        )
