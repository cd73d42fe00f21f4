"""The buffered records of a consumer: one slice of one partition, decoded a chunk at a time.

Owns the boundary between what the user has got and what not, to the record. An iterator over the
current chunk is the cursor: a caller that takes from it, in a loop or by single calls, moves the
position, at no cost per record. It makes each record when it is taken, from the chunk's columns;
the iterator over their offsets, inside it, tells how many are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any, NamedTuple

from millrace._consumer.partition_state import PartitionState, Slice
from millrace._consumer.positions import Positions
from millrace.errors import DeserializationFailed, MillraceError
from millrace.records import (
    Deserializer,
    Record,
    RecordBatch,
    corrupt,
    deserialize,
    make_records,
)
from millrace_protocol.records import (
    Columns,
    CorruptBatch,
    batch_span,
    check_batches,
    decode_columns,
)


class _Chunk(NamedTuple):
    """The current chunk, in one object: another thread sees it whole."""

    state: PartitionState
    offsets: Sequence[int]
    unread: Iterator[int]
    """The rest of `offsets`."""
    end_offset: int


class FetchBuffer:
    """The records that the consumer returns next. `records` is the cursor: take from it freely.

    When it is exhausted, `advance` makes the next chunk current.
    """

    def __init__(
        self,
        positions: Positions,
        *,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
    ) -> None:
        self.records: Iterator[Record[Any, Any]] = iter(())
        self._chunk = Columns(())
        self._offsets: Iterator[int] = iter(())
        self._chunk_end = -1
        self._shown: _Chunk | None = None
        self._state: PartitionState | None = None
        self._slice: Slice | None = None
        self._chunks: Iterator[tuple[Columns, int]] = iter(())
        self._error: MillraceError | None = None
        self._in_hand: dict[PartitionState, int] = {}
        self._one_by_one = False
        self._positions = positions
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer

    @property
    def left(self) -> int:
        """How many records `records` still has."""
        return length_hint(self._offsets)

    @property
    def may_advance(self) -> bool:
        """Whether `advance` may find something without waiting."""
        return self._state is not None or self._positions.is_ready

    def position(self, state: PartitionState) -> int | None:
        """Offset of the next record the user gets from a partition, None until known.

        May be called in any thread.
        """
        shown = self._shown
        if shown is None or shown.state is not state:
            return state.position
        left = length_hint(shown.unread)
        return shown.offsets[-left] if left else shown.end_offset

    # Processed records

    def asked(self, *, one_by_one: bool = False) -> None:
        """The user asks for more, and so is done with all it has got.

        `one_by_one`: from now on it is done with a record when it takes the next from `records`.
        """
        self._in_hand.clear()
        self._one_by_one = one_by_one
        if self._state is not None:
            position = self.position(self._state)
            assert position is not None
            self._in_hand[self._state] = position

    def done(self, state: PartitionState, offset: int) -> None:
        """The user says itself that it is done with a partition up to `offset`, exclusive."""
        position = self.position(state)
        if state in self._in_hand and position is not None:
            self._in_hand[state] = max(self._in_hand[state], min(offset, position))

    def processed(self, state: PartitionState) -> int | None:
        """Offset up to which the user is done with a partition, exclusive; None until known.

        processed <= position: between them is what the user has in hand.
        """
        before = self._in_hand.get(state)
        if before is None:
            return self.position(state)
        if self._one_by_one and state is self._state:
            left = self.left
            if left < len(self._chunk):
                return max(before, self._chunk.offsets[-left - 1])
        return before

    def has_in_hand(self, state: PartitionState) -> bool:
        """Whether the user has records of a partition that it may not be done with."""
        return self.processed(state) != self.position(state)

    @property
    def progress(self) -> tuple[int, int]:
        """Changes whenever the user takes a record."""
        return self._chunk_end, self.left

    # Handing out

    def advance(self, now_ms: int) -> bool:
        """Makes the next chunk current. False when nothing is there yet.

        Called with `records` exhausted. Raises what the next records in line ran into; the
        position is then the offset of the first of them.
        """
        while True:
            state = self._state
            if state is None:
                if not self._open_next(now_ms):
                    return False
                continue
            state.position = self._chunk_end
            if self._error is not None:
                raise self._refused(state)
            try:
                columns, self._chunk_end = next(self._chunks)
            except StopIteration:
                self._finish(state)
            except CorruptBatch as fault:
                position = self._chunk_end
                self._abandon(state)
                raise corrupt(state.where, position, fault) from fault
            else:
                if len(columns):
                    self._show(state, columns)
                    return True

    def next_batch(self, now_ms: int) -> RecordBatch[Any, Any] | None:
        """All that is left of the current slice, or the next slice, as one batch.

        Raises like `advance`.
        """
        if self._state is not None:
            self.give_back()
        taken = self._positions.take(now_ms)
        if taken is None:
            return None
        state, found = taken
        state.position = found.from_offset
        self._in_hand.setdefault(state, found.from_offset)
        try:
            whole, positions = _sound_part(found)
        except CorruptBatch as fault:
            self._positions.refetch(state)
            raise corrupt(state.where, found.from_offset, fault) from fault
        if whole.next_offset < found.next_offset:
            rest = Slice(found.data[len(whole.data) :], whole.next_offset, found.next_offset)
            self._positions.put_back(state, rest)
        state.position = whole.next_offset
        return RecordBatch(
            state.where,
            whole.data,
            base_offset=whole.from_offset,
            next_offset=whole.next_offset,
            positions=positions,
            key_deserializer=self._key_deserializer,
            value_deserializer=self._value_deserializer,
        )

    def give_back(self) -> None:
        """Puts the rest of the current slice back into the buffer."""
        state, current = self._state, self._slice
        if state is None or current is None:
            return
        position, processed = self.position(state), self.processed(state)
        assert position is not None and processed is not None
        self._in_hand[state] = processed
        self._close()
        state.position = position
        if position < current.next_offset:
            self._positions.put_back(state, Slice(current.data, position, current.next_offset))

    def drop(self, state: PartitionState) -> None:
        """Forgets the current slice and what is in hand of this partition, before a seek."""
        self._in_hand.pop(state, None)
        if state is self._state:
            self._close()

    def _open_next(self, now_ms: int) -> bool:
        taken = self._positions.take(now_ms)
        if taken is None:
            return False
        self._state, self._slice = taken
        found = self._slice
        self._chunk_end = found.from_offset
        self._chunks = decode_columns(found.data, from_offset=found.from_offset)
        return True

    def _show(self, state: PartitionState, columns: Columns) -> None:
        """Makes a chunk current, up to the record that a deserializer refuses.

        `advance` raises after them.
        """
        refused = deserialize(columns, self._key_deserializer, self._value_deserializer)
        if refused is not None:
            index, error = refused
            self._chunk_end = columns.offsets[index]
            columns.truncate(index)
            self._error = DeserializationFailed(
                f"{state.where}: the record at offset {self._chunk_end} cannot be deserialized: "
                f"{error!r}; seek to {self._chunk_end + 1} to go on behind it",
                topic=state.where.topic,
                partition=state.where.partition,
                offset=self._chunk_end,
            )
            self._error.__cause__ = error
            # The error refers to this frame.
            del refused, error
        assert state.position is not None
        self._in_hand.setdefault(state, state.position)
        self._chunk = columns
        self._offsets = iter(columns.offsets)
        self._shown = _Chunk(state, columns.offsets, self._offsets, self._chunk_end)
        self.records = make_records(columns, state.where, self._offsets)

    def _finish(self, state: PartitionState) -> None:
        assert self._slice is not None
        state.position = self._slice.next_offset
        self._close()

    def _refused(self, state: PartitionState) -> MillraceError:
        """The error behind the current chunk, which is dropped with its slice."""
        assert self._error is not None
        error = self._error
        self._abandon(state)
        return error

    def _abandon(self, state: PartitionState) -> None:
        """The slice cannot be read on: reads it again from the position, next time."""
        self._close()
        self._positions.refetch(state)

    def _close(self) -> None:
        # A loop may hold the iterator: emptying the columns ends it.
        self._chunk.truncate(0)
        self.records = iter(())
        self._offsets = iter(())
        self._chunks = iter(())
        self._state = self._slice = self._error = self._shown = None


def _sound_part(found: Slice) -> tuple[Slice, list[int]]:
    """The slice up to the first batch that fails its checks, and where its batches begin.

    Raises for the first batch of all.
    """
    positions, fault = check_batches(found.data)
    if fault is None:
        return found, positions
    if not positions:
        raise fault
    last_offset = batch_span(found.data, positions[-1])[3]
    return Slice(found.data[: fault.position], found.from_offset, last_offset + 1), positions
