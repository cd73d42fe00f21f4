"""What can be wrong with a history, and how it is told.

Owns the names and the report. An anomaly comes with the two or three operations that prove it,
so that a person can see it without the program that found it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from tests.history.operations import Crashed, History

SHOWN_MAX = 20
"""Anomalies of one kind that are kept with their proof; the others are counted."""


class Kind(Enum):
    """The anomalies. Source: Jepsen's `kafka` workload, KIP-101 for watermark and epochs."""

    INCONSISTENT_OFFSET = "one offset holds two values"
    DUPLICATE = "one value is at two offsets"
    LOST_WRITE = "an acked value is gone from where it was"
    UNSEEN_WRITE = "the log ends before an acked value"
    TAKEN_BACK = "the log ends before a value that was read"
    HOLE = "a log that lost its end lost something before its end too"
    RESURRECTED = "an acked value is read again after its topic was deleted"
    ABORTED_READ = "a value is read whose send has failed"
    PHANTOM = "a value is read that was not sent there"
    POLL_BACK = "a poll goes back without a seek"
    POLL_SKIP = "a poll passes over a value without a seek"
    SEND_ORDER = "a later send is before an earlier one"
    WATERMARK_BACK = "the high watermark goes back"
    EPOCH_CHANGED = "one offset is in two leader epochs"
    EPOCH_FALLS = "a later offset is in an earlier leader epoch"
    EPOCH_BACK = "a process is told of an older leader epoch"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing wrong; `proof` are numbers of operations, in order."""

    kind: Kind
    sentence: str
    proof: tuple[int, ...]


@dataclass
class Report:
    """What a check found. `is_valid` when there is nothing wrong."""

    history: History
    anomalies: list[Anomaly] = field(default_factory=list)
    counts: Counter[Kind] = field(default_factory=Counter)

    @property
    def is_valid(self) -> bool:
        """Whether no anomaly was found."""
        return not self.counts

    @property
    def kinds(self) -> set[Kind]:
        """The kinds of anomaly found."""
        return set(self.counts)

    def add(self, kind: Kind, sentence: str, *proof: int) -> None:
        """Notes an anomaly."""
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.anomalies.append(Anomaly(kind, sentence, tuple(sorted(set(proof)))))

    def __str__(self) -> str:
        if self.is_valid:
            return f"{len(self.history)} operations, nothing wrong"
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{len(self.history)} operations, {self.counts.total()} anomalies"
        for kind, count in self.counts.items():
            yield f"{kind.name}: {count}: {kind.value}"
            for anomaly in self.anomalies:
                if anomaly.kind is kind:
                    yield f"  {anomaly.sentence}"
                    yield from self._proof(anomaly.proof)

    def _proof(self, proof: tuple[int, ...]) -> Iterator[str]:
        """The operations, and how often something was killed between them."""
        operations = self.history.operations
        for earlier, number in zip((None, *proof), proof, strict=False):
            if earlier is not None:
                between = operations[earlier + 1 : number]
                kills = sum(isinstance(operation, Crashed) for operation in between)
                if kills:
                    yield f"    {'...':>8} {kills} killed"
            yield f"    {number:>8} {operations[number]}"
