"""Valid histories from a seed, and ways to spoil one so that exactly one thing is wrong with it.

A valid history is that of a real log in miniature: sends in flight are appended in the order of
sending, acked, lost on the way, or, without idempotence, appended once more or long after their
sender gave up; logs forget; consumers poll, seek and are killed; at the end everything is read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.history.anomalies import Kind
from tests.history.operations import (
    Acked,
    Assigned,
    Crashed,
    Failed,
    Fetched,
    Forgot,
    History,
    Led,
    Left,
    Operation,
    Polled,
    ReadToEnd,
    Sent,
    Sought,
    Unknown,
    Watermark,
)

FINAL_READER = 999
"""The process that reads everything at the end."""


@dataclass
class _Producer:
    """Sends in flight per partition, in the order of sending; the first is appended first."""

    process: int
    is_idempotent: bool
    flight: dict[str, list[int]] = field(default_factory=dict)


class _World:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.history = History()
        self.logs: dict[str, list[int]] = {f"t-{n}": [] for n in range(rng.randint(1, 3))}
        self.epochs: dict[str, list[int]] = {partition: [] for partition in self.logs}
        """The leader epoch of each offset."""
        self.leading = dict.fromkeys(self.logs, 0)
        self.partitions = list(self.logs)
        self.producers = [_Producer(n, rng.random() < 0.6) for n in range(rng.randint(1, 3))]
        self.consumers = list(range(100, 100 + rng.randint(1, 3)))
        self.positions: dict[tuple[int, str], int] = {}
        self.assigned: dict[int, list[str]] = dict.fromkeys(self.consumers, self.partitions)
        self.late: list[tuple[str, int]] = []
        self.appended: list[tuple[str, int, int]] = []
        self.values = 0

    def live(self, steps: int) -> History:
        """A life of some steps, and the final reading."""
        actions: list[tuple[Callable[[], None], float]] = [
            (self.send, 8),
            (self.append, 8),
            (self.end_unwell, 1),
            (self.append_late, 1),
            (self.ack, 8),
            (self.poll, 6),
            (self.seek, 1),
            (self.assign, 1),
            (self.see_watermark, 1),
            (self.lead, 0.5),
            (self.see_leader, 1),
            (self.crash, 1),
            (self.forget, 0.2),
        ]
        for process in self.consumers:
            self.add(Assigned(process, tuple(self.partitions)))
        calls, weights = zip(*actions, strict=True)
        for call in self.rng.choices(calls, weights, k=steps):
            call()
        self.finish()
        return self.history

    def add(self, operation: Operation) -> None:
        self.history.add(operation)

    def send(self) -> None:
        producer, partition = self.rng.choice(self.producers), self.rng.choice(self.partitions)
        producer.flight.setdefault(partition, []).append(self.values)
        self.add(Sent(producer.process, partition, self.values, producer.is_idempotent))
        self.values += 1

    def _first_in_flight(self) -> tuple[_Producer, str, int] | None:
        producer, partition = self.rng.choice(self.producers), self.rng.choice(self.partitions)
        flight = producer.flight.get(partition)
        return (producer, partition, flight.pop(0)) if flight else None

    def append(self) -> None:
        if (first := self._first_in_flight()) is not None:
            producer, partition, value = first
            self.appended.append((partition, value, len(self.logs[partition])))
            self._append(partition, value)
            if not producer.is_idempotent and self.rng.random() < 0.2:
                self.late.append((partition, value))

    def end_unwell(self) -> None:
        if (first := self._first_in_flight()) is not None:
            producer, partition, value = first
            if self.rng.random() < 0.5:
                self.add(Failed(value))
                return
            if not producer.is_idempotent and self.rng.random() < 0.5:
                self.late.append((partition, value))
            self.add(Unknown(value))

    def append_late(self) -> None:
        if self.late:
            partition, value = self.late.pop()
            self._append(partition, value)

    def _append(self, partition: str, value: int) -> None:
        self.logs[partition].append(value)
        self.epochs[partition].append(self.leading[partition])

    def lead(self) -> None:
        self.leading[self.rng.choice(self.partitions)] += self.rng.randint(1, 2)

    def see_leader(self) -> None:
        process, partition = self.rng.choice(self.consumers), self.rng.choice(self.partitions)
        self.add(Led(process, partition, self.leading[partition]))

    def ack(self) -> None:
        if self.appended:
            _, value, offset = self.appended.pop(self.rng.randrange(len(self.appended)))
            self.add(Acked(value, offset if self.rng.random() < 0.95 else -1))

    def poll(self) -> None:
        process = self.rng.choice(self.consumers)
        if self.assigned[process]:
            self._poll(process, self.rng.choice(self.assigned[process]), self.rng.randint(1, 6))

    def _poll(self, process: int, partition: str, count: int) -> None:
        log = self.logs[partition]
        start = self.positions.setdefault((process, partition), self.rng.randint(0, len(log)))
        records = list(enumerate(log[start : start + count], start))
        if records:
            self.positions[process, partition] = records[-1][0] + 1
            epochs = self.epochs[partition]
            batches = [(offset, offset, epochs[offset]) for offset, _ in records]
            self.add(Fetched(process, partition, batches))
            self.add(Polled(process, partition, records))

    def seek(self) -> None:
        process, partition = self.rng.choice(self.consumers), self.rng.choice(self.partitions)
        if partition in self.assigned[process]:
            offset = self.rng.randint(0, len(self.logs[partition]))
            self.positions[process, partition] = offset
            self.add(Sought(process, partition, self.rng.choice([offset, None])))

    def assign(self) -> None:
        process = self.rng.choice(self.consumers)
        wanted = self.rng.sample(self.partitions, self.rng.randint(0, len(self.partitions)))
        for partition in set(self.assigned[process]) - set(wanted):
            self.positions.pop((process, partition), None)
        self.assigned[process] = wanted
        self.add(Assigned(process, tuple(wanted)))

    def see_watermark(self) -> None:
        process, partition = self.rng.choice(self.consumers), self.rng.choice(self.partitions)
        self.add(Watermark(process, partition, len(self.logs[partition])))

    def crash(self) -> None:
        if self.rng.random() < 0.5:
            self.add(Crashed("a broker"))
            return
        process = self.rng.choice(self.consumers)
        for partition in self.partitions:
            self.positions.pop((process, partition), None)
        self.add(Crashed(f"consumer {process}", process))

    def forget(self) -> None:
        """A power cut takes the end of a log that was not synced, or its topic is made anew."""
        partition = self.rng.choice(self.partitions)
        log = self.logs[partition]
        left = self.rng.choice([Left.PREFIX, Left.PREFIX, Left.NOTHING])
        kept = log[: self.rng.randint(0, len(log)) if left is Left.PREFIX else 0]
        self.add(Forgot(partition, left))
        # A consumer may have more at hand than is left.
        process = self.rng.choice(self.consumers)
        if (process, partition) in self.positions:
            self._poll(process, partition, 4)
        log[:] = kept
        del self.epochs[partition][len(kept) :]
        if left is Left.NOTHING:
            self.leading[partition] = 0
        for process in self.consumers:
            if self.positions.get((process, partition), 0) > len(log):
                del self.positions[process, partition]
                self.add(Sought(process, partition, None))

    def finish(self) -> None:
        while self.appended:
            self.ack()
        for partition, log in self.logs.items():
            self.add(Sought(FINAL_READER, partition, 0))
            self.positions[FINAL_READER, partition] = 0
            while self.positions[FINAL_READER, partition] < len(log):
                self._poll(FINAL_READER, partition, self.rng.randint(1, 10))
            self.add(ReadToEnd(partition, 0, len(log)))


def valid_history(seed: int, *, steps: int = 120) -> History:
    """A history in which nothing is wrong."""
    return _World(random.Random(seed)).live(steps)


Mutation = Callable[[History, random.Random], History | None]
"""Spoils a copy of a valid history; None where it offers no place for that."""


def _acks(history: History) -> list[int]:
    """Numbers of acks that name an offset and are still a promise at the end."""
    operations = history.operations
    forgot = {op.partition: n for n, op in enumerate(operations) if isinstance(op, Forgot)}
    promised = {
        op.value
        for n, op in enumerate(operations)
        if isinstance(op, Sent) and n > forgot.get(op.partition, -1)
    }
    return [
        n
        for n, op in enumerate(operations)
        if isinstance(op, Acked) and op.offset >= 0 and op.value in promised
    ]


def _final_polls(history: History) -> list[int]:
    return [
        n
        for n, operation in enumerate(history.operations)
        if isinstance(operation, Polled) and operation.process == FINAL_READER
    ]


def _without(history: History, value: int) -> History:
    """No poll ever gave a value."""
    spoilt = []
    for operation in history.operations:
        if isinstance(operation, Polled):
            kept = [record for record in operation.records if record[1] != value]
            operation = replace(operation, records=kept)
        spoilt.append(operation)
    return History(spoilt)


def _with(history: History, number: int, operation: Operation) -> History:
    """One operation is another."""
    spoilt = list(history.operations)
    spoilt[number] = operation
    return History(spoilt)


def _spoilt_record(history: History, rng: random.Random, record: tuple[int, int]) -> History | None:
    """A record of the final reading is another."""
    polls = _final_polls(history)
    if not polls:
        return None
    number = rng.choice(polls)
    poll = history.operations[number]
    assert isinstance(poll, Polled)
    place = rng.randrange(len(poll.records))
    offset, value = poll.records[place]
    records = list(poll.records)
    records[place] = (offset + record[0], record[1] if record[1] >= 0 else value)
    return _with(history, number, replace(poll, records=records))


def lose(history: History, rng: random.Random) -> History | None:
    """An acked value is nowhere to be read."""
    acks = _acks(history)
    if not acks:
        return None
    acked = history.operations[rng.choice(acks)]
    assert isinstance(acked, Acked)
    return _without(history, acked.value)


def invent(history: History, rng: random.Random) -> History | None:
    """A value is read that was not sent."""
    return _spoilt_record(history, rng, (0, 10**9))


def misplace(history: History, rng: random.Random) -> History | None:
    """An ack names an offset that the value is not at, even if it is there twice."""
    acks = _acks(history)
    if not acks:
        return None
    number = rng.choice(acks)
    acked = history.operations[number]
    assert isinstance(acked, Acked)
    return _with(history, number, Acked(acked.value, acked.offset + rng.randint(1_000, 1_050)))


def abort(history: History, rng: random.Random) -> History | None:
    """A value that was read had failed."""
    acks = _acks(history)
    if not acks:
        return None
    number = rng.choice(acks)
    acked = history.operations[number]
    assert isinstance(acked, Acked)
    return _with(history, number, Failed(acked.value))


def repeat(history: History, rng: random.Random) -> History | None:
    """A poll gives again what the one before it gave."""
    polls = _final_polls(history)
    if not polls:
        return None
    number = rng.choice(polls)
    spoilt = list(history.operations)
    spoilt.insert(number, spoilt[number])
    return History(spoilt)


def skip(history: History, rng: random.Random) -> History | None:
    """A second reader of everything misses one record."""
    polls = _final_polls(history)
    if not polls:
        return None
    poll = history.operations[rng.choice(polls)]
    assert isinstance(poll, Polled)
    missed = rng.randrange(len(poll.records))
    kept = poll.records[:missed] + poll.records[missed + 1 :]
    spoilt = list(history.operations)
    spoilt.append(Sought(FINAL_READER + 1, poll.partition, poll.records[0][0]))
    after = [(poll.records[-1][0] + 1, 10**9)]
    spoilt += [
        Sent(FINAL_READER, poll.partition, 10**9),
        Polled(FINAL_READER + 1, poll.partition, kept + after),
    ]
    return History(spoilt)


def shorten(history: History, rng: random.Random) -> History | None:
    """The log ends before its last acked value."""
    ends = {op.partition: n for n, op in enumerate(history.operations) if isinstance(op, ReadToEnd)}
    partition, number = rng.choice(sorted(ends.items()))
    partition_of = {op.value: op.partition for op in history.operations if isinstance(op, Sent)}
    acked = [
        op
        for n in _acks(history)
        if isinstance(op := history.operations[n], Acked) and partition_of[op.value] == partition
    ]
    if not acked:
        return None
    cut = max(op.offset for op in acked)
    spoilt = []
    for operation in _with(history, number, ReadToEnd(partition, 0, cut)).operations:
        if isinstance(operation, Polled) and operation.partition == partition:
            kept = [record for record in operation.records if record[0] < cut]
            operation = replace(operation, records=kept)
        spoilt.append(operation)
    return History(spoilt)


def go_back(history: History, rng: random.Random) -> History | None:
    """The high watermark falls."""
    end = rng.choice([op for op in history.operations if isinstance(op, ReadToEnd)])
    if not end.end_offset:
        return None
    spoilt = list(history.operations)
    spoilt.append(Watermark(FINAL_READER, end.partition, end.end_offset))
    spoilt.append(Watermark(FINAL_READER, end.partition, rng.randrange(end.end_offset)))
    return History(spoilt)


def take_back(history: History, rng: random.Random) -> History | None:
    """The log ends before a value that was read, as if the last reader had read no further."""
    number = rng.choice([n for n, op in enumerate(history.operations) if isinstance(op, ReadToEnd)])
    end = history.operations[number]
    assert isinstance(end, ReadToEnd)
    if not end.end_offset:
        return None
    return _with(history, number, replace(end, end_offset=rng.randrange(end.end_offset)))


def tear(history: History, rng: random.Random) -> History | None:
    """After a power cut the last value is left, and one before it is not."""
    number = max(n for n, op in enumerate(history.operations) if isinstance(op, ReadToEnd))
    end = history.operations[number]
    assert isinstance(end, ReadToEnd)
    sent = {op.value: op for op in history.operations if isinstance(op, Sent)}
    acked = {op.value for n in _acks(history) if isinstance(op := history.operations[n], Acked)}
    holed = sorted(
        record
        for n in _final_polls(history)
        if isinstance(poll := history.operations[n], Polled) and poll.partition == end.partition
        for record in poll.records
    )
    last = holed[-1][1] if holed else -1
    if len(holed) < 2 or last not in acked or not sent[last].is_idempotent:
        return None
    reader = FINAL_READER + 1
    del holed[rng.randrange(len(holed) - 1)]
    spoilt = list(history.operations)
    spoilt += [
        Forgot(end.partition),
        Sought(reader, end.partition, 0),
        Polled(reader, end.partition, holed),
        ReadToEnd(end.partition, 0, end.end_offset),
    ]
    return History(spoilt)


def resurrect(history: History, rng: random.Random) -> History | None:
    """What was acked is read again after its topic was deleted."""
    sent = {op.value: op for op in history.operations if isinstance(op, Sent)}
    acked = [
        op
        for n in _acks(history)
        if isinstance(op := history.operations[n], Acked) and sent[op.value].is_idempotent
    ]
    if not acked:
        return None
    again = rng.choice(acked)
    partition = sent[again.value].partition
    spoilt = list(history.operations)
    spoilt += [
        Forgot(partition, Left.NOTHING),
        Polled(FINAL_READER + 1, partition, [(again.offset, again.value)]),
    ]
    return History(spoilt)


def _last_fetches(history: History) -> list[Fetched]:
    """The last batches of each partition, as the final reader got them."""
    fetches = {
        op.partition: op
        for op in history.operations
        if isinstance(op, Fetched) and op.process == FINAL_READER
    }
    return list(fetches.values())


def _and_then(history: History, *operations: Operation) -> History:
    return History([*history.operations, *operations])


def relabel(history: History, rng: random.Random) -> History | None:
    """A second reader is given an offset in another epoch."""
    fetches = _last_fetches(history)
    if not fetches:
        return None
    fetch = rng.choice(fetches)
    base, last, epoch = rng.choice(fetch.batches)
    other = (base, last, epoch + rng.randint(1, 3))
    return _and_then(history, Fetched(FINAL_READER + 1, fetch.partition, [other]))


def fall(history: History, rng: random.Random) -> History | None:
    """What is appended next is in an older epoch."""
    fetches = [fetch for fetch in _last_fetches(history) if fetch.batches[-1][2]]
    if not fetches:
        return None
    fetch = rng.choice(fetches)
    _, last, epoch = fetch.batches[-1]
    older = (last + 1, last + rng.randint(1, 9), rng.randrange(epoch))
    return _and_then(history, Fetched(FINAL_READER + 1, fetch.partition, [older]))


def depose(history: History, rng: random.Random) -> History | None:
    """A reader is told of a leader, and then of one before it."""
    fetches = _last_fetches(history)
    if not fetches:
        return None
    fetch = rng.choice(fetches)
    epoch = fetch.batches[-1][2] + rng.randint(1, 3)
    told = [Led(FINAL_READER, fetch.partition, each) for each in (epoch, epoch - 1)]
    return _and_then(history, *told)


MUTATIONS: dict[Mutation, set[Kind]] = {
    lose: {Kind.LOST_WRITE},
    invent: {Kind.PHANTOM, Kind.INCONSISTENT_OFFSET},
    misplace: {Kind.DUPLICATE, Kind.SEND_ORDER, Kind.UNSEEN_WRITE},
    abort: {Kind.ABORTED_READ},
    repeat: {Kind.POLL_BACK},
    skip: {Kind.POLL_SKIP},
    shorten: {Kind.UNSEEN_WRITE},
    go_back: {Kind.WATERMARK_BACK},
    take_back: {Kind.TAKEN_BACK},
    tear: {Kind.HOLE},
    resurrect: {Kind.RESURRECTED},
    relabel: {Kind.EPOCH_CHANGED},
    fall: {Kind.EPOCH_FALLS},
    depose: {Kind.EPOCH_BACK},
}
"""Each mutation, and the anomalies of which at least one must be found."""
