"""The polls of a history: where each consumer is, and what it passes over.

Owns positions and what they cover. Refuses to know what was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.history.anomalies import Kind, Report
from tests.history.operations import Assigned, Polled, Sought


@dataclass(slots=True)
class Position:
    """Where a consumer goes on: `offset`, since the operation `number`."""

    offset: int
    number: int


@dataclass(slots=True)
class Jump:
    """A consumer went from `start` to `end`, exclusive, and was given nothing between them."""

    process: int
    start: int
    end: int
    left: int
    arrived: int


class Polls:
    """Positions of all consumers in one history, followed in its order."""

    def __init__(self, report: Report) -> None:
        self.jumps: dict[str, list[Jump]] = {}
        self._report = report
        self._positions: dict[int, dict[str, Position]] = {}

    def assign(self, assigned: Assigned) -> None:
        """Partitions that stay keep their position, new ones begin anywhere."""
        positions = self._positions.get(assigned.process, {})
        self._positions[assigned.process] = {
            partition: positions[partition]
            for partition in assigned.partitions
            if partition in positions
        }

    def seek(self, number: int, sought: Sought) -> None:
        """The next poll begins at the offset, or anywhere."""
        positions = self._positions.setdefault(sought.process, {})
        positions.pop(sought.partition, None)
        if sought.offset is not None:
            positions[sought.partition] = Position(sought.offset, number)

    def drop(self, process: int) -> None:
        """The consumer is gone."""
        self._positions.pop(process, None)

    def poll(self, number: int, polled: Polled) -> None:
        """Follows one poll. Offsets must rise; where they do not rise by one there is a jump."""
        records = polled.records
        if not records:
            return
        positions = self._positions.setdefault(polled.process, {})
        position = positions.get(polled.partition)
        if position is None:
            position = Position(records[0][0], number)
        expected, left = position.offset, position.number
        for offset, value in records:
            if offset != expected:
                self._step(polled, value, expected, offset, left, number)
            expected, left = offset + 1, number
        positions[polled.partition] = Position(expected, number)

    def forget(self, partition: str) -> None:
        """What was passed over there does not count any more; positions stay."""
        self.jumps.pop(partition, None)

    def check_jumps(self, partition: str, known: dict[int, tuple[int, int]]) -> None:
        """Reports jumps over an offset that another poll has given: `known` by offset.

        Linear for a log that is read in order: known offsets are looked up, never searched, and
        a jump is as long as what it leaves out.
        """
        for jump in self.jumps.get(partition, ()):
            for offset in _overlap(jump, known):
                value, seen = known[offset]
                self._report.add(
                    Kind.POLL_SKIP,
                    f"{partition}: process {jump.process} goes from offset {jump.start} to "
                    f"{jump.end} and passes over {value} at {offset}",
                    jump.left,
                    jump.arrived,
                    seen,
                )
                break

    def _step(
        self, polled: Polled, value: int, expected: int, offset: int, left: int, number: int
    ) -> None:
        partition = polled.partition
        if offset < expected:
            self._report.add(
                Kind.POLL_BACK,
                f"{partition}: process {polled.process} is at offset {expected} and is given "
                f"{value} at {offset}",
                left,
                number,
            )
            return
        jump = Jump(polled.process, expected, offset, left, number)
        self.jumps.setdefault(partition, []).append(jump)


def _overlap(jump: Jump, known: dict[int, tuple[int, int]]) -> Iterable[int]:
    """The known offsets in a jump, by whichever is the shorter way."""
    if jump.end - jump.start <= len(known):
        return (offset for offset in range(jump.start, jump.end) if offset in known)
    return sorted(offset for offset in known if jump.start <= offset < jump.end)
