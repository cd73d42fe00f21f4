"""Idempotence: which batches of which producers are in this log.

Owns the sequence rules of KIP-98 and their packed form in the checkpoint. Refuses to know time
(a parameter) and where batches lie. A retry of one of the last five batches is answered with the
offset it has; five, because a producer keeps at most five requests in flight.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from millrace_protocol.records import BatchHeader
from millrace_server.log.errors import FencedProducer, OutOfOrderSequence, UnknownProducer

BATCHES_KEPT: Final = 5
PRODUCERS_MAX: Final = 10_000
"""About 10 MB of state. Above it the producer that has been silent longest is forgotten."""

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_PRODUCER = struct.Struct(">qhBq")
_BATCH = struct.Struct(">iiqqq")


class AppendedBatch(NamedTuple):
    """A batch that a producer may send again; both ends are inclusive."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    log_append_time_ms: int


class ActiveProducer(NamedTuple):
    """A producer that a log knows, the last sequence number of it, and when it wrote last."""

    producer_id: int
    epoch: int
    last_sequence: int
    used_ms: int


@dataclass(slots=True)
class ProducerState:
    """One producer id: its epoch and its latest batches, oldest first."""

    epoch: int
    used_ms: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))


class Producers:
    """The producers of one log, the one that wrote last at the end."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Returns the batch that `header` repeats, None if it is the next one.

        A producer that the log does not know may begin anywhere, as in Kafka; see `check_begin`.
        Raises `FencedProducer` or `OutOfOrderSequence`; changes nothing.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        base_sequence = header.base_sequence
        state = self._states.get(producer_id)
        if state is None:
            return None
        if epoch != state.epoch:
            if epoch < state.epoch:
                raise FencedProducer(producer_id, epoch=epoch, current_epoch=state.epoch)
            if base_sequence != 0:
                raise OutOfOrderSequence(producer_id, sequence=base_sequence, expected=0)
            return None
        last_sequence = header.last_sequence
        for batch in state.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        expected = (state.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
        if base_sequence != expected:
            raise OutOfOrderSequence(producer_id, sequence=base_sequence, expected=expected)
        return None

    def check_begin(self, header: BatchHeader) -> None:
        """Raises `UnknownProducer` unless the log knows the producer, or this is its first batch.

        What it wrote before may be forgotten: a retry of that would be appended once more.
        """
        sequence = header.base_sequence
        if sequence and header.producer_id not in self._states:
            raise UnknownProducer(header.producer_id, sequence=sequence)

    def note(
        self, header: BatchHeader, *, base_offset: int, log_append_time_ms: int, now_ms: int
    ) -> None:
        """Remembers a batch that is in the log; accepts what `check` would not, as replay must."""
        state = self._states.pop(header.producer_id, None)
        if state is None or state.epoch != header.producer_epoch:
            state = ProducerState(header.producer_epoch, now_ms)
        state.used_ms = now_ms
        state.batches.append(
            AppendedBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                log_append_time_ms,
            )
        )
        self._states[header.producer_id] = state
        if len(self._states) > PRODUCERS_MAX:
            del self._states[next(iter(self._states))]

    def truncated_to(self, end_offset: int) -> tuple[Producers, set[int]]:
        """Returns the producers that wrote nothing at `end_offset` or behind it, and the ids of
        the others, whose latest batches before it are to be noted anew."""
        kept, others = Producers(), set[int]()
        for producer_id, state in self._states.items():
            if state.batches[-1].last_offset < end_offset:
                kept._states[producer_id] = state
            else:
                others.add(producer_id)
        return kept, others

    def active(self) -> list[ActiveProducer]:
        """Returns every producer, the one that wrote last at the end."""
        return [
            ActiveProducer(producer_id, state.epoch, state.batches[-1].last_sequence, state.used_ms)
            for producer_id, state in self._states.items()
        ]

    def ends(self) -> frozenset[tuple[int, int]]:
        """Returns the id and the last offset of the latest batch of every producer."""
        return frozenset(
            (producer_id, state.batches[-1].last_offset)
            for producer_id, state in self._states.items()
        )

    def expire(self, now_ms: int, *, silent_ms: int) -> int:
        """Forgets producers that have been silent for longer than `silent_ms`; returns how many."""
        count = 0
        while self._states:
            producer_id = next(iter(self._states))
            if now_ms - self._states[producer_id].used_ms <= silent_ms:
                break
            del self._states[producer_id]
            count += 1
        return count

    def encode(self) -> bytes:
        """Returns `(id i64, epoch i16, batch count u8, used ms i64, batches*)*`, oldest first.

        A batch is base sequence i32, last sequence i32, base offset i64, last offset i64 and
        log-append time i64, all big-endian.
        """
        parts = []
        for producer_id, state in self._states.items():
            parts.append(
                _PRODUCER.pack(producer_id, state.epoch, len(state.batches), state.used_ms)
            )
            parts += [_BATCH.pack(*batch) for batch in state.batches]
        return b"".join(parts)

    @classmethod
    def can_decode(cls, data: bytes) -> bool:
        """Whether `decode` can read all of it."""
        position = 0
        while position < len(data):
            if position + _PRODUCER.size > len(data):
                return False
            count = _PRODUCER.unpack_from(data, position)[2]
            position += _PRODUCER.size + count * _BATCH.size
        return position == len(data)

    @classmethod
    def decode(cls, data: bytes) -> Producers:
        """Reads what `encode` made; `struct.error` if it ends early."""
        producers = cls()
        position = 0
        while position < len(data):
            producer_id, epoch, count, used_ms = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            state = ProducerState(epoch, used_ms)
            for _ in range(count):
                state.batches.append(AppendedBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            producers._states[producer_id] = state
        return producers
