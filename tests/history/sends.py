"""The sends of a history: what became of each, and whether offsets follow the order of sending.

Owns outcomes, order, and what is still promised of a send. Refuses to know what was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.history.anomalies import Kind, Report
from tests.history.operations import Acked, Failed, Forgot, Left, Sent


class Outcome(Enum):
    """What the sender knows."""

    UNKNOWN = "unknown"
    ACKED = "acked"
    FAILED = "failed"


@dataclass(slots=True)
class Send:
    """One send: begun by the operation `began`, ended by `ended` (its own while it has none).

    `offset` is -1 while nothing is promised: not acked, acked without an offset, or the partition
    has forgotten what it held since the send began. `is_gone` when it was acked before a deletion.
    """

    partition: str
    began: int
    ended: int
    is_idempotent: bool
    acked_before: tuple[int, int]
    """The highest offset acked in the partition when it began, and the operation that acked it."""
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    is_forgotten: bool = False
    is_gone: bool = False


_NOTHING_ACKED = (-1, -1)


class Sends:
    """Every send by its value, filled in the order of the history."""

    def __init__(self, report: Report) -> None:
        self.by_value: dict[int, Send] = {}
        self._report = report
        self._acked: dict[str, tuple[int, int]] = {}
        self._by_sender: dict[tuple[int, str], list[int]] = {}
        self._promised: dict[str, list[Send]] = {}

    def begin(self, number: int, sent: Sent) -> None:
        """A send begins. Raises `ValueError` for a value that was sent before."""
        if sent.value in self.by_value:
            raise ValueError(f"operation {number}: {sent.value} was sent before; values are unique")
        acked = self._acked.get(sent.partition, _NOTHING_ACKED)
        send = Send(sent.partition, number, number, sent.is_idempotent, acked)
        self.by_value[sent.value] = send
        self._promised.setdefault(sent.partition, []).append(send)
        self._by_sender.setdefault((sent.process, sent.partition), []).append(sent.value)

    def ack(self, number: int, acked: Acked) -> None:
        """A send ends well. What was acked before it began must lie before it."""
        send = self._end(number, acked.value, Outcome.ACKED)
        if acked.offset < 0 or send.is_forgotten:
            return
        send.offset = offset = acked.offset
        before, before_number = send.acked_before
        if offset < before:
            self._report.add(
                Kind.SEND_ORDER,
                f"{send.partition}: {acked.value} got offset {offset}, and offset {before} was "
                "acked before it was sent",
                before_number,
                send.began,
                number,
            )
        if offset > self._acked.get(send.partition, _NOTHING_ACKED)[0]:
            self._acked[send.partition] = (offset, number)

    def fail(self, number: int, failed: Failed) -> None:
        """A send ends without effect."""
        self._end(number, failed.value, Outcome.FAILED)

    def forget(self, forgot: Forgot) -> None:
        """Nothing is promised any more of what was sent to the partition by now."""
        for send in self._promised.pop(forgot.partition, ()):
            send.is_gone = forgot.left is Left.NOTHING and send.is_idempotent and send.offset >= 0
            send.is_forgotten = True
            send.offset = -1
        self._acked.pop(forgot.partition, None)

    def check_order(self, places: dict[str, dict[int, tuple[int, int]]]) -> None:
        """What one process sent to one partition must lie in the order of sending.

        Also where sends were on their way together: a producer keeps their order. `places` is
        where each value was first seen, as (offset, operation): what was not acked counts too,
        unless it may be there twice.
        """
        for (process, partition), values in self._by_sender.items():
            seen = places.get(partition, {})
            last: tuple[int, Send] | None = None
            for value in values:
                send = self.by_value[value]
                offset, told = send.offset, send.ended
                if offset < 0:
                    if not send.is_idempotent or value not in seen:
                        continue
                    offset, told = seen[value]
                # With both acked and the other one before this began, `ack` has told already.
                if (
                    last is not None
                    and offset < last[0]
                    and not (
                        send.offset >= 0 and last[1].offset >= 0 and last[1].ended < send.began
                    )
                ):
                    self._report.add(
                        Kind.SEND_ORDER,
                        f"{partition}: process {process} sent {value} after what got offset "
                        f"{last[0]}, and it got {offset}",
                        last[1].ended,
                        send.began,
                        told,
                    )
                if last is None or offset > last[0]:
                    last = offset, send

    def _end(self, number: int, value: int, outcome: Outcome) -> Send:
        send = self.by_value.get(value)
        if send is None or send.outcome is not Outcome.UNKNOWN:
            raise ValueError(f"operation {number}: {value} ends and has not begun, or ended before")
        send.ended, send.outcome = number, outcome
        return send
