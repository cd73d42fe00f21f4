"""The sends of a history: what became of each, and whether offsets follow the order of sending.

Owns outcomes and order. Refuses to know what was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.history.anomalies import Kind, Report
from tests.history.operations import Acked, Failed, Sent


class Outcome(Enum):
    """What the sender knows."""

    UNKNOWN = "unknown"
    ACKED = "acked"
    FAILED = "failed"


@dataclass(slots=True)
class Send:
    """One send: begun by the operation `began`, ended by `ended` (its own while it has none)."""

    partition: str
    began: int
    ended: int
    acked_before: tuple[int, int]
    """The highest offset acked in the partition when it began, and the operation that acked it."""
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1


_NOTHING_ACKED = (-1, -1)


class Sends:
    """Every send by its value, filled in the order of the history."""

    def __init__(self, report: Report) -> None:
        self.by_value: dict[int, Send] = {}
        self._report = report
        self._acked: dict[str, tuple[int, int]] = {}
        self._by_sender: dict[tuple[int, str], list[int]] = {}

    def begin(self, number: int, sent: Sent) -> None:
        """A send begins. Raises `ValueError` for a value that was sent before."""
        if sent.value in self.by_value:
            raise ValueError(f"operation {number}: {sent.value} was sent before; values are unique")
        acked = self._acked.get(sent.partition, _NOTHING_ACKED)
        self.by_value[sent.value] = Send(sent.partition, number, number, acked)
        self._by_sender.setdefault((sent.process, sent.partition), []).append(sent.value)

    def ack(self, number: int, acked: Acked) -> None:
        """A send ends well. What was acked before it began must lie before it."""
        send = self._end(number, acked.value, Outcome.ACKED)
        send.offset = offset = acked.offset
        if offset < 0:
            return
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

    def check_order(self) -> None:
        """What one process sent to one partition must be acked in the order of sending.

        Also where sends were on their way together: a producer keeps their order.
        """
        for (process, partition), values in self._by_sender.items():
            last: Send | None = None
            for value in values:
                send = self.by_value[value]
                if send.offset < 0:
                    continue
                # With the other one acked before this began, `ack` has told already.
                if last is not None and send.offset < last.offset and last.ended > send.began:
                    self._report.add(
                        Kind.SEND_ORDER,
                        f"{partition}: process {process} sent {value} after what got offset "
                        f"{last.offset}, and it got {send.offset}",
                        last.ended,
                        send.began,
                        send.ended,
                    )
                if last is None or send.offset > last.offset:
                    last = send

    def _end(self, number: int, value: int, outcome: Outcome) -> Send:
        send = self.by_value.get(value)
        if send is None or send.outcome is not Outcome.UNKNOWN:
            raise ValueError(f"operation {number}: {value} ends and has not begun, or ended before")
        send.ended, send.outcome = number, outcome
        return send
