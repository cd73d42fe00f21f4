"""Whether a history can be that of a correct log: `check`.

Two passes. The first follows the operations in order: positions, acks, what each poll gave. The
second looks at each partition as a whole. Time and memory grow with the number of operations and
records. Source: Jepsen's `kafka` workload.

A value is *lost* when it was acked and never read although a consumer went past its offset, or
the partition was read to an end behind it; *unseen* when that end lies before it. A partition
that may have forgotten what it held (`Forgot`) begins a new life: what is known of it is judged,
and then known no more.
"""

from __future__ import annotations

from bisect import bisect_left

from tests.history.anomalies import Kind, Report
from tests.history.epochs import Epochs
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
        self._epochs = Epochs(self._report)
        # Per partition: offset to (value, operation), and value to (offset, operation), of the
        # first that told it.
        self._at: dict[str, dict[int, tuple[int, int]]] = {}
        self._where: dict[str, dict[int, tuple[int, int]]] = {}
        # What polls gave: offset to (value, operation), and value to (offset, operation).
        self._read: dict[str, dict[int, tuple[int, int]]] = {}
        self._seen: dict[str, dict[int, tuple[int, int]]] = {}
        self._watermarks: dict[str, dict[int, tuple[int, int]]] = {}
        self._ends: dict[str, tuple[ReadToEnd, int]] = {}
        self._began: dict[int, int] = {}
        # What was known of a partition when it last forgot, and in which operation.
        self._past: dict[str, dict[int, tuple[int, int]]] = {}
        self._forgot: dict[str, tuple[Forgot, int]] = {}

    def run(self) -> Report:
        for number, operation in enumerate(self._history.operations):
            match operation:
                case Sent():
                    self._sends.begin(number, operation)
                case Polled():
                    self._began.setdefault(operation.process, number)
                    self._polls.poll(number, operation)
                    self._note_read(number, operation)
                case Fetched():
                    if not self._is_stale(number, operation):
                        self._epochs.fetch(number, operation)
                case Led():
                    if not self._is_stale(number, operation):
                        self._epochs.lead(number, operation)
                case Acked():
                    self._sends.ack(number, operation)
                    send = self._sends.by_value[operation.value]
                    if send.offset >= 0:
                        self._place(send, operation.value, send.offset, number)
                case Failed():
                    self._sends.fail(number, operation)
                case Assigned():
                    self._began.setdefault(operation.process, number)
                    self._polls.assign(operation)
                case Sought():
                    self._began.setdefault(operation.process, number)
                    self._polls.seek(number, operation)
                case Watermark():
                    self._note_watermark(number, operation)
                case ReadToEnd():
                    self._ends[operation.partition] = (operation, number)
                case Crashed(process=process) if process is not None:
                    self._polls.drop(process)
                case Forgot():
                    self._forget(number, operation)
                case _:
                    pass
        self._sends.check_order(self._where)
        self._epochs.check()
        for partition in self._read:
            self._check_reads(partition)
            self._check_taken_back(partition)
        self._check_acked()
        for partition, (forgot, _) in self._forgot.items():
            if forgot.left is Left.PREFIX:
                self._check_prefix(partition)
        return self._report

    # While following the operations

    def _is_stale(self, number: int, operation: Fetched | Led) -> bool:
        """Whether a process may be told of a partition's former life: it began in that."""
        began = self._began.setdefault(operation.process, number)
        return began < self._forgot.get(operation.partition, (None, -1))[1]

    def _note_read(self, number: int, polled: Polled) -> None:
        partition = polled.partition
        read = self._read.setdefault(partition, {})
        seen = self._seen.setdefault(partition, {})
        forgot = self._forgot.get(partition, (None, -1))[1]
        is_stale = self._began[polled.process] < forgot
        for offset, value in polled.records:
            send = self._sends.by_value.get(value)
            if is_stale and send is not None and send.began < forgot:
                continue
            first = read.setdefault(offset, (value, number))
            if first[0] != value or first[1] == number:
                seen.setdefault(value, (offset, number))
                if send is None or send.partition != partition:
                    self._place_at(partition, value, offset, number)
                else:
                    self._place(send, value, offset, number)

    def _place(self, send: Send, value: int, offset: int, number: int) -> None:
        """A value is at an offset, and perhaps at no other."""
        partition = send.partition
        self._place_at(partition, value, offset, number)
        where, told = self._where.setdefault(partition, {}).setdefault(value, (offset, number))
        if where != offset and send.is_idempotent:
            self._report.add(
                Kind.DUPLICATE,
                f"{partition}: {value} is at offset {where} and at {offset}",
                told,
                number,
            )

    def _place_at(self, partition: str, value: int, offset: int, number: int) -> None:
        """No other value may be there."""
        there, told = self._at.setdefault(partition, {}).setdefault(offset, (value, number))
        if there != value:
            self._report.add(
                Kind.INCONSISTENT_OFFSET,
                f"{partition}: offset {offset} holds {there} and {value}",
                told,
                number,
            )

    def _forget(self, number: int, forgot: Forgot) -> None:
        """Judges what is known of a partition's life, and begins another one."""
        partition = forgot.partition
        self._check_reads(partition)
        self._sends.forget(forgot)
        self._polls.forget(partition)
        self._epochs.forget(partition)
        self._past[partition] = self._at.pop(partition, {})
        self._forgot[partition] = forgot, number
        for known in (self._where, self._read, self._seen, self._watermarks):
            known.pop(partition, None)
        self._ends.pop(partition, None)

    def _note_watermark(self, number: int, seen: Watermark) -> None:
        watermarks = self._watermarks.setdefault(seen.partition, {})
        before, told = watermarks.get(seen.process, (0, number))
        if seen.offset < before:
            self._report.add(
                Kind.WATERMARK_BACK,
                f"{seen.partition}: the high watermark was {before} and is {seen.offset}",
                told,
                number,
            )
        watermarks[seen.process] = (seen.offset, number)

    # Afterwards

    def _check_reads(self, partition: str) -> None:
        """Every value that was read was sent there, by then, and is not known not to be there.

        And no consumer passed over one.
        """
        self._polls.check_jumps(partition, self._read.get(partition, {}))
        for value, (offset, number) in self._seen.get(partition, {}).items():
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
            elif send.is_gone:
                self._report.add(
                    Kind.RESURRECTED,
                    f"{partition}: {value} is at offset {offset} and was deleted",
                    send.ended,
                    self._forgot[partition][1],
                    number,
                )

    def _check_taken_back(self, partition: str) -> None:
        """What was read before the last word lies before the end."""
        if partition not in self._ends:
            return
        end, end_number = self._ends[partition]
        for offset, (value, number) in self._read[partition].items():
            if offset >= end.end_offset and number < end_number:
                self._report.add(
                    Kind.TAKEN_BACK,
                    f"{partition}: {value} was read at offset {offset} and the log ends at "
                    f"{end.end_offset}",
                    number,
                    end_number,
                )

    def _check_prefix(self, partition: str) -> None:
        """Where something is left of what a partition held, all that lay before it is left.

        Only what was acked before proves it: anything else may have been sent again since, and
        have come to the same place.
        """
        past, read = self._past[partition], self._read.get(partition, {})
        forgot = self._forgot[partition][1]
        left = {o for o, (value, _) in past.items() if o in read and read[o][0] == value}
        last = max((o for o in left if self._was_settled(past[o][0], forgot)), default=-1)
        end, _ = self._ends.get(partition, (None, -1))
        for offset, (value, number) in past.items():
            if offset >= last or offset in left:
                continue
            is_missing = end is not None and end.start_offset <= offset and offset not in read
            if is_missing or (offset in read and read[offset][0] != value):
                self._report.add(
                    Kind.HOLE,
                    f"{partition}: offset {offset} held {value} and does not any more, and "
                    f"offset {last} is left as it was",
                    number,
                    forgot,
                    read[last][1],
                )

    def _was_settled(self, value: int, number: int) -> bool:
        """Whether no client would send a value again after an operation."""
        send = self._sends.by_value.get(value)
        return (
            send is not None
            and send.is_idempotent
            and send.outcome is Outcome.ACKED
            and send.ended < number
        )

    def _check_acked(self) -> None:
        passed: dict[str, _Passed] = {}
        for value, send in self._sends.by_value.items():
            if send.offset < 0 or self._is_seen(value, send):
                continue
            if send.partition not in passed:
                passed[send.partition] = _Passed(self._polls, send.partition)
            self._check_unread(value, send, passed[send.partition])

    def _is_seen(self, value: int, send: Send) -> bool:
        """Whether a value was read; where it may be twice, at the offset of the ack."""
        if send.is_idempotent:
            return value in self._seen.get(send.partition, ())
        return self._read.get(send.partition, {}).get(send.offset, (None, -1))[0] == value

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
