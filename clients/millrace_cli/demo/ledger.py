"""What the demo's group did with a topic: the account, and whether it is what it should be.

Owns the judgement: at least once, in order, and twice only what the killed member had not
committed. Knows no processes; it is told what each said, in the lines of `member`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FAULTS_MAX = 10
"""Of one kind; the rest of them is counted."""


class Processed(NamedTuple):
    """Records without a gap that a member was done with."""

    at_ns: int
    member: int
    partition: int
    first_offset: int
    last_offset: int
    keys: Sequence[str]


class Ledger:
    """What was processed and committed of partitions that hold the offsets from 0 to their end.

    `ends` are the ends of the partitions, exclusive. Members are numbers.
    """

    def __init__(self, ends: Mapping[int, int]) -> None:
        self.ends = dict(ends)
        self.records = 0
        """How many were processed; what was processed twice counts twice."""
        self.refusals: list[str] = []
        """Commits that were refused, in sentences; a later one may have made up for it."""
        self._processed: list[Processed] = []
        self._committed: dict[int, dict[int, int]] = {}
        self._come_to = dict.fromkeys(ends, 0)

    def processed(self, member: int, at_ns: int, rows: Sequence[Sequence[Any]]) -> None:
        """`rows` are those of the line."""
        runs = [Processed(at_ns, member, *row) for row in rows]
        self._processed += runs
        self.records += sum(run.last_offset - run.first_offset + 1 for run in runs)

    def committed(self, member: int, rows: Sequence[tuple[int, int]]) -> None:
        """`rows` are those of the line."""
        self._committed.setdefault(member, {}).update(rows)
        for partition, offset in rows:
            self._come_to[partition] = max(self._come_to[partition], offset)

    def refused(self, member: int, rows: Sequence[tuple[int, str]]) -> None:
        """`rows` are those of the line."""
        self.refusals += [f"member {member}, partition {where}: {why}" for where, why in rows]

    @property
    def is_done(self) -> bool:
        """Whether the group has committed every partition to its end."""
        return self._come_to == self.ends

    def left(self, partitions: Sequence[int]) -> int:
        """How many records of these the group has not committed."""
        return sum(self.ends[where] - self._come_to[where] for where in partitions)

    def records_of(self, member: int) -> int:
        """How many a member has processed."""
        return sum(
            run.last_offset - run.first_offset + 1
            for run in self._processed
            if run.member == member
        )

    def partitions_of(self, member: int) -> list[int]:
        """Of which partitions a member has processed records, sorted."""
        return sorted({run.partition for run in self._processed if run.member == member})

    def window(self, member: int) -> set[tuple[int, int]]:
        """Partition and offset of what a member processed after its last commit of each."""
        committed = self._committed.get(member, {})
        return {
            (run.partition, offset)
            for run in self._processed
            if run.member == member
            for offset in range(run.first_offset, run.last_offset + 1)
            if offset >= committed.get(run.partition, 0)
        }

    def repeated(self) -> dict[tuple[int, int], int]:
        """Partition and offset of what was processed more than once, and how often that was."""
        return {
            (partition, offset): count
            for partition, counts in self._counts().items()
            for offset, count in enumerate(counts)
            if count > 1
        }

    def faults(self, killed: int) -> list[str]:
        """What is not as it should be with the group one of whose members was killed."""
        return [
            *_some(self._never_processed()),
            *_some(self._out_of_order()),
            *_some(self._keys_apart()),
            *_some(self._repeated_needlessly(killed)),
        ]

    def _counts(self) -> dict[int, list[int]]:
        """How often each offset of each partition was processed."""
        counts = {partition: [0] * end for partition, end in self.ends.items()}
        for run in self._processed:
            of_partition = counts[run.partition]
            for offset in range(run.first_offset, run.last_offset + 1):
                of_partition[offset] += 1
        return counts

    def _never_processed(self) -> list[str]:
        return [
            f"partition {partition}, offset {offset}: never processed"
            for partition, counts in self._counts().items()
            for offset, count in enumerate(counts)
            if count == 0
        ]

    def _out_of_order(self) -> list[str]:
        """A key's records are in one partition, so a partition in order is all its keys in order:
        forward in each process, and over all of them none before the one that precedes it."""
        faults: list[str] = []
        next_offset = dict.fromkeys(self.ends, 0)
        read: dict[tuple[int, int], int] = {}
        for run in sorted(self._processed, key=lambda run: run.at_ns):
            where = f"member {run.member}, partition {run.partition}, offset {run.first_offset}"
            if run.first_offset <= read.get((run.member, run.partition), -1):
                faults.append(f"{where}: it was beyond that already")
            if run.first_offset > next_offset[run.partition]:
                faults.append(f"{where}: {next_offset[run.partition]} was not processed before")
            read[run.member, run.partition] = run.last_offset
            next_offset[run.partition] = max(next_offset[run.partition], run.last_offset + 1)
        return faults

    def _keys_apart(self) -> list[str]:
        partitions: dict[str, set[int]] = {}
        for run in self._processed:
            for key in run.keys:
                partitions.setdefault(key, set()).add(run.partition)
        return [
            f"key {key}: is in the partitions {', '.join(map(str, sorted(found)))}"
            for key, found in sorted(partitions.items())
            if len(found) > 1
        ]

    def _repeated_needlessly(self, killed: int) -> list[str]:
        window = self.window(killed)
        faults: list[str] = []
        for (partition, offset), count in self.repeated().items():
            if (partition, offset) not in window:
                why = f"and member {killed} had not left it uncommitted"
            elif count > 2:
                why = "and one time more was enough"
            else:
                continue
            faults.append(f"partition {partition}, offset {offset}: processed {count} times, {why}")
        return faults


def _some(faults: list[str]) -> list[str]:
    more = len(faults) - FAULTS_MAX
    return faults if more <= 0 else [*faults[:FAULTS_MAX], f"and {more:,} more of these"]
