"""Whether a history can be that of a correct log: `check`.

Two passes. The first follows the operations in order: positions, acks, what each poll gave. The
second looks at each partition as a whole. Time and memory grow with the number of operations and
records. Source: Jepsen's `kafka` workload.

A value is *lost* when it was acked and never read although a consumer went past its offset, or
the partition was read to an end behind it; *unseen* when that end lies before it.
"""

from __future__ import annotations

from bisect import bisect_left

from tests.history.anomalies import Kind, Report
from tests.history.operations import (
    Acked,
    Assigned,
    Crashed,
    Failed,
    History,
    Polled,
    ReadToEnd,
    Sent,
    Sought,
    Watermark,
)
from tests.history.polls import Polls
from tests.history.sends import Outcome, Send, Sends


def check(history: History) -> Report:
    """Reports everything in a history that a correct log cannot have shown.

    Raises `ValueError` for a list of operations that is no history: a value sent twice, an end
    without a beginning.
    """
    return _Check(history).run()


class _Check:
    def __init__(self, history: History) -> None:
        self._history = history
        self._report = Report(history)
        self._sends = Sends(self._report)
        self._polls = Polls(self._report)
        # Per partition: offset to (value, operation), and value to (offset, operation), of the
        # first that said so.
        self._at: dict[str, dict[int, tuple[int, int]]] = {}
        self._where: dict[str, dict[int, tuple[int, int]]] = {}
        # What polls gave: offset to (value, operation), and value to (offset, operation).
        self._read: dict[str, dict[int, tuple[int, int]]] = {}
        self._seen: dict[str, dict[int, tuple[int, int]]] = {}
        self._watermarks: dict[tuple[int, str], tuple[int, int]] = {}
        self._ends: dict[str, tuple[ReadToEnd, int]] = {}

    def run(self) -> Report:
        for number, operation in enumerate(self._history.operations):
            match operation:
                case Sent():
                    self._sends.begin(number, operation)
                case Polled():
                    self._polls.poll(number, operation)
                    self._note_read(number, operation)
                case Acked():
                    self._sends.ack(number, operation)
                    if operation.offset >= 0:
                        partition = self._sends.by_value[operation.value].partition
                        self._place(partition, operation.offset, operation.value, number)
                case Failed():
                    self._sends.fail(number, operation)
                case Assigned():
                    self._polls.assign(operation)
                case Sought():
                    self._polls.seek(number, operation)
                case Watermark():
                    self._note_watermark(number, operation)
                case ReadToEnd():
                    self._ends[operation.partition] = (operation, number)
                case Crashed(process=process) if process is not None:
                    self._polls.forget(process)
                case _:
                    pass
        self._sends.check_order()
        self._check_reads()
        self._check_acked()
        for partition, known in self._read.items():
            self._polls.check_jumps(partition, known)
        return self._report

    # While following the operations

    def _note_read(self, number: int, polled: Polled) -> None:
        read = self._read.setdefault(polled.partition, {})
        seen = self._seen.setdefault(polled.partition, {})
        for offset, value in polled.records:
            first = read.setdefault(offset, (value, number))
            if first[0] != value or first[1] == number:
                seen.setdefault(value, (offset, number))
                self._place(polled.partition, offset, value, number)

    def _place(self, partition: str, offset: int, value: int, number: int) -> None:
        """Somebody says that a value is at an offset; nobody may say otherwise."""
        there, said = self._at.setdefault(partition, {}).setdefault(offset, (value, number))
        if there != value:
            self._report.add(
                Kind.INCONSISTENT_OFFSET,
                f"{partition}: offset {offset} holds {there} and {value}",
                said,
                number,
            )
        where, said = self._where.setdefault(partition, {}).setdefault(value, (offset, number))
        if where != offset:
            self._report.add(
                Kind.DUPLICATE,
                f"{partition}: {value} is at offset {where} and at {offset}",
                said,
                number,
            )

    def _note_watermark(self, number: int, seen: Watermark) -> None:
        key = seen.process, seen.partition
        before, said = self._watermarks.get(key, (0, number))
        if seen.offset < before:
            self._report.add(
                Kind.WATERMARK_BACK,
                f"{seen.partition}: the high watermark was {before} and is {seen.offset}",
                said,
                number,
            )
        self._watermarks[key] = (seen.offset, number)

    # Afterwards

    def _check_reads(self) -> None:
        """Every value that was read was sent to that partition, by then, and did not fail."""
        for partition, seen in self._seen.items():
            for value, (offset, number) in seen.items():
                send = self._sends.by_value.get(value)
                if send is None or send.partition != partition or send.began > number:
                    proof = () if send is None else (send.began,)
                    self._report.add(
                        Kind.PHANTOM,
                        f"{partition}: {value} is at offset {offset} and was not sent there before",
                        *proof,
                        number,
                    )
                elif send.outcome is Outcome.FAILED:
                    self._report.add(
                        Kind.ABORTED_READ,
                        f"{partition}: {value} is at offset {offset} and its send had failed",
                        send.began,
                        send.ended,
                        number,
                    )

    def _check_acked(self) -> None:
        passed: dict[str, _Passed] = {}
        for value, send in self._sends.by_value.items():
            if send.offset < 0 or value in self._seen.get(send.partition, ()):
                continue
            if send.partition not in passed:
                passed[send.partition] = _Passed(self._polls, send.partition)
            self._check_unread(value, send, passed[send.partition])

    def _check_unread(self, value: int, send: Send, passed: _Passed) -> None:
        partition, offset = send.partition, send.offset
        end, end_number = self._ends.get(partition, (None, -1))
        if end is not None and end_number > send.ended:
            if offset >= end.end_offset:
                self._report.add(
                    Kind.UNSEEN_WRITE,
                    f"{partition}: {value} was acked at offset {offset} and the log ends at "
                    f"{end.end_offset}",
                    send.ended,
                    end_number,
                )
            elif offset >= end.start_offset:
                self._lose(value, send, end_number)
            return
        number = passed.over(offset)
        if number is not None:
            self._lose(value, send, number)
        elif offset in self._read.get(partition, ()):
            self._lose(value, send, self._read[partition][offset][1])

    def _lose(self, value: int, send: Send, number: int) -> None:
        self._report.add(
            Kind.LOST_WRITE,
            f"{send.partition}: {value} was acked at offset {send.offset} and is not there",
            send.began,
            send.ended,
            number,
        )


class _Passed:
    """The offsets of a partition that consumers went past, as merged intervals."""

    def __init__(self, polls: Polls, partition: str) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._numbers: list[int] = []
        for jump in sorted(polls.jumps.get(partition, ()), key=lambda jump: jump.start):
            if self._ends and jump.start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], jump.end)
                continue
            self._starts.append(jump.start)
            self._ends.append(jump.end)
            self._numbers.append(jump.arrived)

    def over(self, offset: int) -> int | None:
        """The poll that passed over an offset; None if none did."""
        place = bisect_left(self._starts, offset + 1) - 1
        if place >= 0 and offset < self._ends[place]:
            return self._numbers[place]
        return None
