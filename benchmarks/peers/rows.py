"""What a run found out: a row for each way in each case, as JSON for programs.

Owns the shape of the figures and the ratios between rows. Refuses to know how anything was
measured. Rounds have the same order in all rows of a case, so ratios pair rounds that ran next to
each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.samples import Spread

SCHEMA = 1
_CHANGING = {"load before the run"}


class Different(Exception):
    """Two runs that do not belong on one page."""


@dataclass(frozen=True, slots=True)
class Row:
    """One way in one case.

    `figures` maps a name that ends with its unit to one value for each round. `checked` is how
    many records were counted and compared with those that were sent, by a checksum.
    """

    workload: str
    case: str
    way: str
    peer: str
    durability: str
    figures: Mapping[str, Sequence[float]]
    checked: int = 0

    def spread(self, figure: str) -> Spread:
        """Median, lowest and highest round of a figure. Raises `KeyError` if it has none."""
        return Spread.of(self.figures[figure])


@dataclass(frozen=True, slots=True)
class Skipped:
    """A peer, or one workload of it, that did not run, and why."""

    what: str
    reason: str
    failed: bool = False


@dataclass(slots=True)
class Run:
    """Everything one run found out. `peers` maps each to its version and what is special of it."""

    machine: Mapping[str, str]
    options: Mapping[str, str]
    peers: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether a workload broke down. A missed goal is a finding, not a failure."""
        return any(skipped.failed for skipped in self.skipped)

    def find(self, workload: str, case: str, way: str) -> Row | None:
        """The row of a way in a case; None if it did not run."""
        for row in self.rows:
            if (row.workload, row.case, row.way) == (workload, case, way):
                return row
        return None

    def check_like(self, other: Run) -> None:
        """Raises `Different` if the machine or a version of another run is not the same."""
        for name, fact in {**self.machine, **self.peers}.items():
            found = {**other.machine, **other.peers}.get(name, fact)
            if found != fact and name not in _CHANGING:
                raise Different(f"{name}: {fact} now, and {found} in the figures to keep")

    def beside(self, kept: Run, workloads: Sequence[str]) -> Run:
        """This run of some workloads, and all others as `kept` has them."""
        rows = [row for row in kept.rows if row.workload not in workloads]
        skipped = [one for one in kept.skipped if one.what.split(", ")[0] not in workloads]
        order = list(dict.fromkeys(row.workload for row in rows))
        options = {**self.options, "workloads": ", ".join([*order, *workloads])}
        return Run(
            self.machine,
            options,
            {**kept.peers, **self.peers},
            [*rows, *self.rows],
            [*skipped, *(one for one in self.skipped if one not in skipped)],
        )

    def to_json(self) -> str:
        """For a file; `of_json` is the inverse."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1)

    @classmethod
    def of_json(cls, text: str) -> Run:
        """Reads what `to_json` wrote. Raises `ValueError` for another schema."""
        read: dict[str, Any] = json.loads(text)
        if read.pop("schema", None) != SCHEMA:
            raise ValueError(f"the file of results is not of schema {SCHEMA}: measure again")
        rows = [Row(**row) for row in read.pop("rows")]
        skipped = [Skipped(**one) for one in read.pop("skipped")]
        return cls(**read, rows=rows, skipped=skipped)


def ratio(ours: Row, theirs: Row, figure: str) -> Spread:
    """Ours divided by theirs, round by round."""
    pairs = zip(ours.figures[figure], theirs.figures[figure], strict=True)
    return Spread.of([a / b for a, b in pairs])


def cases_of(rows: Iterable[Row]) -> list[str]:
    """The cases of some rows, in their order, each once."""
    return list(dict.fromkeys(row.case for row in rows))
