"""What clients did in a run, as a history, and what the history has no words for.

Owns the recorder: every send, poll and question of a client goes through here, and `check` hands
the whole to `tests.history`, which is where verdicts are made. Beside it: the bytes of each value,
so that a record with other bytes is none that was sent; the timestamps, for lookups by time; and
what retention must not have taken. Knows no simulation.

A value begins with its number in the history, in decimal, and a space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.history.checker import check
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
    Polled,
    ReadToEnd,
    Sent,
    Sought,
    Unknown,
    Watermark,
)

Where = tuple[str, int]
NOT_SENT = -1
"""The number of a value that was not sent."""
NOT_STAMPED = -1
"""The timestamp of a record whose broker may have set any."""
SHOWN_MAX = 3


def partition_name(where: Where) -> str:
    """A partition as the history names it, and the broker its directory."""
    return f"{where[0]}-{where[1]}"


@dataclass(slots=True)
class Written:
    """A record that was sent. Its timestamp is `stamp_ms` or, if the broker sets it, later.

    `offset` is where it was acked in the `life`th life of its partition, -1 where it was not.
    """

    value: bytes
    where: Where
    stamp_ms: int
    life: int
    offset: int = -1
    acked_s: float = float("inf")
    is_acked_with_offset: bool = False

    @property
    def is_acked(self) -> bool:
        return self.acked_s < float("inf")


class Ledger:
    """The history of one run."""

    def __init__(self) -> None:
        self.history = History()
        self.written: list[Written] = []
        self.lives: Counter[Where] = Counter()
        """How often a partition may have forgotten what it held."""
        self.acked_count = 0
        self._processes = 0
        self._numbers: dict[str, int] = {}

    def process(self, name: str | None = None) -> int:
        """The number of another client; `name` is that of its process, if it has one of its own."""
        self._processes += 1
        if name is not None:
            self._numbers[name] = self._processes
        return self._processes

    def number_of_process(self, name: str) -> int | None:
        """The number of a process, None if it is not a client's."""
        return self._numbers.get(name)

    # Sends

    def sent(
        self, process: int, where: Where, *, padding: bytes, stamp_ms: int, is_idempotent: bool
    ) -> bytes:
        """A record is about to be handed to a producer; returns its value, which is unique."""
        number = len(self.written)
        value = b"%d %s" % (number, padding)
        self.written.append(Written(value, where, stamp_ms, self.lives[where]))
        self.history.add(Sent(process, partition_name(where), number, is_idempotent))
        return value

    def acked(self, value: bytes, offset: int, *, now_s: float) -> None:
        """A record was acked; `offset` is -1 with `acks=0`."""
        number = self.number_of(value)
        written = self.written[number]
        written.acked_s = now_s
        written.is_acked_with_offset = offset >= 0
        if self.lives[written.where] == written.life:
            written.offset = offset
        self.acked_count += 1
        self.history.add(Acked(number, offset))

    def ended(self, value: bytes, *, is_certain: bool) -> None:
        """A send ended without an ack: it was certainly not written, or it may be."""
        number = self.number_of(value)
        self.history.add(Failed(number) if is_certain else Unknown(number))

    def number_of(self, value: bytes | None) -> int:
        """The number of a value, `NOT_SENT` if it differs in any byte from what was sent."""
        digits = (value or b"").split(b" ", 1)[0]
        number = int(digits) if digits.isdigit() and len(digits) < 10 else NOT_SENT
        if number < len(self.written) and self.written[number].value == value:
            return number
        return NOT_SENT

    # Readings

    def assigned(self, process: int, wheres: Iterable[Where]) -> None:
        """A consumer reads exactly these partitions."""
        self.history.add(Assigned(process, tuple(map(partition_name, wheres))))

    def sought(self, process: int, where: Where, offset: int | None) -> None:
        """A consumer goes on at an offset; None: only the broker knows where."""
        self.history.add(Sought(process, partition_name(where), offset))

    def polled(self, process: int, where: Where, records: Sequence[tuple[int, bytes]]) -> None:
        """A consumer was given records of one partition: (offset, value)."""
        numbered = [(offset, self.number_of(value)) for offset, value in records]
        self.history.add(Polled(process, partition_name(where), numbered))

    def fetched(self, process: int, where: Where, batches: list[tuple[int, int, int]]) -> None:
        """A consumer got batches: (base offset, last offset, leader epoch)."""
        self.history.add(Fetched(process, partition_name(where), batches))

    def told_leader(self, process: int, where: Where, epoch: int) -> None:
        """A client was told in which epoch a partition is led."""
        self.history.add(Led(process, partition_name(where), epoch))

    def saw_end(self, process: int, where: Where, offset: int, *, life: int) -> None:
        """A client asked in the `life`th life of a partition where it ends."""
        if life == self.lives[where]:
            self.history.add(Watermark(process, partition_name(where), offset))

    def read_to_end(self, where: Where, start_offset: int, end_offset: int) -> None:
        """All of a partition was read, for the last time."""
        self.history.add(ReadToEnd(partition_name(where), start_offset, end_offset))

    # What happens to them

    def forgot(self, where: Where, left: Left) -> None:
        """A partition may have lost what it held, and was allowed to."""
        self.lives[where] += 1
        self.history.add(Forgot(partition_name(where), left))

    def killed(self, what: str, process: int | None = None) -> None:
        """Something was killed; `process` if it was a client."""
        self.history.add(Crashed(what, process))

    # Verdicts

    def taken_too_early(self, where: Where, *, start_offset: int, since_ms: int) -> list[str]:
        """What retention by time has taken though it is not older than `since_ms`."""
        return [
            f"{partition_name(where)}: record {number} at offset {written.offset} has timestamp "
            f"{written.stamp_ms}, what is younger than {since_ms} stays, and the log starts at "
            f"{start_offset}"
            for number, written in enumerate(self.written)
            if written.where == where
            and written.life == self.lives[where]
            and 0 <= written.offset < start_offset
            and written.stamp_ms >= since_ms
        ]

    def check(self) -> list[str]:
        """Every way in which the history cannot be that of a correct broker, as sentences."""
        report = check(self.history)
        return [
            f"{kind.name} ({count}): {anomaly.sentence}"
            for kind, count in report.counts.items()
            for anomaly in [a for a in report.anomalies if a.kind is kind][:SHOWN_MAX]
        ]
