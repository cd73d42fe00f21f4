"""What happened, as a list of operations in the order in which they began or ended.

Owns the vocabulary and the recorder. Refuses to judge: `checker` does. Every value is an integer
that is sent once in the whole history, so that a value read names the send it came from. A
partition is any string, a process any integer: a producer, or one consumer from its start to its
end. A send that never ends is unknown; a timeout is unknown too, never failed.
Source: the operations of Jepsen's `kafka` workload.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

UNKNOWN_OFFSET = -1
"""The offset of an ack that names none, as with `acks=0`."""


@dataclass(slots=True)
class Sent:
    """A send begins.

    `is_idempotent`: the value is in the log at most once, and in the order of sending even if
    it was never acked. Without, a retry may be there too, or a late one alone.
    """

    process: int
    partition: str
    value: int
    is_idempotent: bool = True

    def __str__(self) -> str:
        return f"process {self.process} sends {self.value} to {self.partition}"


@dataclass(slots=True)
class Acked:
    """A send is acknowledged at `offset`."""

    value: int
    offset: int

    def __str__(self) -> str:
        return f"{self.value} is acked at offset {self.offset}"


@dataclass(slots=True)
class Failed:
    """A send has definitely not happened, and will not."""

    value: int

    def __str__(self) -> str:
        return f"the send of {self.value} fails"


@dataclass(slots=True)
class Unknown:
    """The outcome of a send is not known: it may be in the log, or get there later."""

    value: int

    def __str__(self) -> str:
        return f"the send of {self.value} ends unknown"


@dataclass(slots=True)
class Polled:
    """A poll of one partition gave `records`: (offset, value) in the order they came."""

    process: int
    partition: str
    records: list[tuple[int, int]]

    def __str__(self) -> str:
        records = self.records
        shown = ", ".join(f"{value} at {offset}" for offset, value in records[:4])
        if len(records) > 4:
            shown += f", ... {records[-1][1]} at {records[-1][0]}"
        return f"process {self.process} polls {len(records)} of {self.partition}: {shown}"


@dataclass(slots=True)
class Fetched:
    """A consumer gets `batches` of a partition: (base offset, last offset, leader epoch).

    In the order they came, before any of their records is polled. The last offset is inclusive.
    """

    process: int
    partition: str
    batches: list[tuple[int, int, int]]

    def __str__(self) -> str:
        shown = ", ".join(f"{b} to {e} of epoch {epoch}" for b, e, epoch in self.batches[:4])
        return f"process {self.process} fetches batches of {self.partition}: {shown}"


@dataclass(slots=True)
class Led:
    """A process is told in which leader epoch a partition is led."""

    process: int
    partition: str
    epoch: int

    def __str__(self) -> str:
        return f"process {self.process} is told that {self.partition} is led in epoch {self.epoch}"


@dataclass(slots=True)
class Assigned:
    """A consumer reads exactly `partitions` from now on; those it had go on where they are."""

    process: int
    partitions: tuple[str, ...]

    def __str__(self) -> str:
        return f"process {self.process} is assigned {', '.join(self.partitions) or 'nothing'}"


@dataclass(slots=True)
class Sought:
    """A consumer goes on at `offset`; None for a place that only the broker knows."""

    process: int
    partition: str
    offset: int | None

    def __str__(self) -> str:
        where = "an unknown offset" if self.offset is None else f"offset {self.offset}"
        return f"process {self.process} seeks {self.partition} to {where}"


@dataclass(slots=True)
class Watermark:
    """A process is told the high watermark of a partition: the exclusive end of what is readable.

    A process asks one question at a time.
    """

    process: int
    partition: str
    offset: int

    def __str__(self) -> str:
        return f"process {self.process} sees the high watermark of {self.partition}: {self.offset}"


@dataclass(slots=True)
class ReadToEnd:
    """The polls up to here have read all there is: `start_offset` to `end_offset`, exclusive.

    The last word about a partition: what was acked and not polled by now is gone.
    """

    partition: str
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.partition} was read from {self.start_offset} to its end {self.end_offset}"


class Left(Enum):
    """What may be left of what a partition held."""

    PREFIX = "all up to some offset"
    NOTHING = "nothing"
    ANYTHING = "anything"


@dataclass(slots=True)
class Forgot:
    """A partition may have lost what it held, whatever was promised of it.

    A power cut does it to a log that is not synced, a deletion to all of a topic. What is sent
    from now on is promised again; a send that has begun before is not. What a consumer is given
    is trusted again if it began (its first operation) since; one that goes on may still have
    old records at hand.
    """

    partition: str
    left: Left = Left.PREFIX

    def __str__(self) -> str:
        return f"{self.partition} may have forgotten what it held; left is {self.left.value}"


@dataclass(slots=True)
class Crashed:
    """Something was killed. A consumer that was (`process`) has lost its positions."""

    what: str
    process: int | None = None

    def __str__(self) -> str:
        return f"{self.what} is killed"


Operation = (
    Sent
    | Acked
    | Failed
    | Unknown
    | Polled
    | Fetched
    | Led
    | Assigned
    | Sought
    | Watermark
    | ReadToEnd
    | Forgot
    | Crashed
)


@dataclass
class History:
    """Operations in order; the number of an operation is its place in the list."""

    operations: list[Operation] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.operations)

    def add(self, operation: Operation) -> None:
        """Notes that an operation has just begun (`Sent`) or ended (all others)."""
        self.operations.append(operation)

    def extend(self, operations: Iterable[Operation]) -> None:
        """Notes several."""
        self.operations.extend(operations)
