"""The ledger of the demo's group: the processed and committed records, and the checks.

Owns the checks: each record at least once, in order, and twice only records that the killed member
had not committed. Knows no processes; the caller passes the reports of `member`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FAULTS_MAX = 10
"""Listed faults of one kind; the others are counted."""


class Processed(NamedTuple):
    """A run of records without a gap that a member has processed."""

    at_ns: int
    member: int
    partition: int
    first_offset: int
    last_offset: int
    keys: Sequence[str]


class Ledger:
    """The processed and committed records of partitions with the offsets from 0 to their ends.

    `ends` are the ends of the partitions, exclusive. Members are numbers.
    """

    def __init__(self, ends: Mapping[int, int]) -> None:
        self.ends = dict(ends)
        self.records = 0
        """Processed records; a record that was processed twice counts twice."""
        self.refusals: list[str] = []
        """Messages of rejected commits; a later commit may have succeeded."""
        self._processed: list[Processed] = []
        self._committed: dict[int, dict[int, int]] = {}
        self._group_offsets = dict.fromkeys(ends, 0)

    def processed(self, member: int, at_ns: int, rows: Sequence[Sequence[Any]]) -> None:
        """Adds the `rows` of a report."""
        runs = [Processed(at_ns, member, *row) for row in rows]
        self._processed += runs
        self.records += sum(run.last_offset - run.first_offset + 1 for run in runs)

    def committed(self, member: int, rows: Sequence[tuple[int, int]]) -> None:
        """Adds the `rows` of a report."""
        self._committed.setdefault(member, {}).update(rows)
        for partition, offset in rows:
            self._group_offsets[partition] = max(self._group_offsets[partition], offset)

    def refused(self, member: int, rows: Sequence[tuple[int, str]]) -> None:
        """Adds the `rows` of a report."""
        self.refusals += [f"member {member}, partition {where}: {reason}" for where, reason in rows]

    @property
    def is_done(self) -> bool:
        """Whether the group has committed every partition to its end."""
        return self._group_offsets == self.ends

    def left(self, partitions: Sequence[int]) -> int:
        """The number of records of these partitions that the group has not committed."""
        return sum(self.ends[where] - self._group_offsets[where] for where in partitions)

    def records_of(self, member: int) -> int:
        """The number of records that a member has processed."""
        return sum(
            run.last_offset - run.first_offset + 1
            for run in self._processed
            if run.member == member
        )

    def partitions_of(self, member: int) -> list[int]:
        """The partitions of a member's records, sorted."""
        return sorted({run.partition for run in self._processed if run.member == member})

    def window(self, member: int) -> set[tuple[int, int]]:
        """Partition and offset of the records that a member processed after its last commits."""
        committed = self._committed.get(member, {})
        return {
            (run.partition, offset)
            for run in self._processed
            if run.member == member
            for offset in range(run.first_offset, run.last_offset + 1)
            if offset >= committed.get(run.partition, 0)
        }

    def repeated(self) -> dict[tuple[int, int], int]:
        """Partition and offset of records that were processed more than once, with their counts."""
        return {
            (partition, offset): count
            for partition, counts in self._counts().items()
            for offset, count in enumerate(counts)
            if count > 1
        }

    def faults(self, killed: int) -> list[str]:
        """Violations of the guarantees, for a group with one killed member."""
        return [
            *_some(self._never_processed()),
            *_some(self._out_of_order()),
            *_some(self._keys_apart()),
            *_some(self._repeated_needlessly(killed)),
        ]

    def _counts(self) -> dict[int, list[int]]:
        """The number of times that each offset of each partition was processed."""
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
        """A key's records are in one partition, so the order of a partition is that of its keys:
        each member moves forward, and no record is processed before the previous one."""
        faults: list[str] = []
        next_offset = dict.fromkeys(self.ends, 0)
        read: dict[tuple[int, int], int] = {}
        for run in sorted(self._processed, key=lambda run: run.at_ns):
            where = f"member {run.member}, partition {run.partition}, offset {run.first_offset}"
            if run.first_offset <= read.get((run.member, run.partition), -1):
                faults.append(f"{where}: the member had processed it, or a later offset")
            if run.first_offset > next_offset[run.partition]:
                faults.append(f"{where}: {next_offset[run.partition]} was not processed before it")
            read[run.member, run.partition] = run.last_offset
            next_offset[run.partition] = max(next_offset[run.partition], run.last_offset + 1)
        return faults

    def _keys_apart(self) -> list[str]:
        partitions: dict[str, set[int]] = {}
        for run in self._processed:
            for key in run.keys:
                partitions.setdefault(key, set()).add(run.partition)
        return [
            f"key {key}: is in several partitions: {', '.join(map(str, sorted(found)))}"
            for key, found in sorted(partitions.items())
            if len(found) > 1
        ]

    def _repeated_needlessly(self, killed: int) -> list[str]:
        window = self.window(killed)
        faults: list[str] = []
        for (partition, offset), count in self.repeated().items():
            if (partition, offset) not in window:
                reason = f"and member {killed} had committed it"
            elif count > 2:
                reason = "and two times are the maximum"
            else:
                continue
            faults.append(
                f"partition {partition}, offset {offset}: processed {count} times, {reason}"
            )
        return faults


def _some(faults: list[str]) -> list[str]:
    more = len(faults) - FAULTS_MAX
    return faults if more <= 0 else [*faults[:FAULTS_MAX], f"and {more:,} more of this kind"]
