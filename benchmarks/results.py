"""The results file: rows of comparisons and facts, as JSON for programs and Markdown for people.

Owns what a row is and how it is written. Refuses to know how anything was measured. Nothing that
names a machine is written: no host names, no paths.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.samples import Sample, Spread, best_ratio, cpu_ratios, wall_ratios

SCHEMA = 1
By = Literal["wall", "cpu"]
Measure = Literal["time", "CPU", "lower"]
"""Of a change: units per second, units per CPU second, or a fact that is better when lower."""
CHANGE_MIN = 0.95
RATIO_UNIT = "times"
"""Of facts that are the ratio of two other facts."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """What one contestant did over all rounds, in units per second and per CPU second."""

    name: str
    per_wall_s: Spread
    per_cpu_s: Spread


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours against theirs.

    `wall` and `cpu` over the pairs of rounds, `best` of the fastest round of each by wall time.
    `target` is for the measure named in `target_by`; None: no target.
    """

    ours: str
    theirs: str
    wall: Spread
    cpu: Spread
    best: float
    target: float | None = None
    target_by: By = "wall"

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the target; None without one."""
        if self.target is None:
            return None
        return (self.wall if self.target_by == "wall" else self.cpu).median >= self.target


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row: contestants that did the same work, and the ratios that matter."""

    group: str
    title: str
    unit: str
    contestants: tuple[Contestant, ...]
    ratios: tuple[Ratio, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure that is held against a limit. `limit` is exclusive; None: shown for scale only."""

    group: str
    title: str
    unit: str
    value: Spread
    limit: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the median stays below the limit; None without one."""
        return None if self.limit is None else self.value.median < self.limit


@dataclass(frozen=True, slots=True)
class Change:
    """One figure before and after, over pairs of runs; `ratio` > 1: after is better.

    `best` is the ratio of the best run of each.
    """

    group: str
    title: str
    unit: str
    measure: Measure
    before: Spread
    after: Spread
    ratio: Spread
    best: float
    limit: float = CHANGE_MIN

    @classmethod
    def of(
        cls,
        group: str,
        title: str,
        unit: str,
        measure: Measure,
        pairs: Sequence[tuple[float, float]],
    ) -> Change:
        """A change from `(before, after)` of each pair."""
        befores = [before for before, _ in pairs]
        afters = [after for _, after in pairs]
        is_lower = measure == "lower"
        best = min if is_lower else max
        return cls(
            group,
            title,
            unit,
            measure,
            Spread.of(befores),
            Spread.of(afters),
            Spread.of([_improvement(*pair, is_lower=is_lower) for pair in pairs]),
            _improvement(best(befores), best(afters), is_lower=is_lower),
        )

    @property
    def met(self) -> bool:
        """Whether the median ratio reaches the limit."""
        return self.ratio.median >= self.limit


def _improvement(before: float, after: float, *, is_lower: bool) -> float:
    """How many times better `after` is; finite for figures that are 0."""
    tiny = 1e-9
    better, worse = (before, after) if is_lower else (after, before)
    return (better + tiny) / (worse + tiny)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A group, or a part of one, that did not run, and why."""

    group: str
    reason: str
    failed: bool = False


Row = Comparison | Fact | Change | Skipped


@dataclass(slots=True)
class Results:
    """Everything one run found out."""

    machine: Mapping[str, str]
    options: Mapping[str, Any]
    rows: list[Row] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether a group broke down; a missed target is a finding, not a failure."""
        return any(isinstance(row, Skipped) and row.failed for row in self.rows)


def compare(
    group: str,
    title: str,
    unit: str,
    samples: Mapping[str, Sequence[Sample]],
    targets: Sequence[tuple[str, str, float | None]],
    *,
    target_by: By = "wall",
    note: str = "",
) -> Comparison:
    """A comparison row from samples; `targets` are `(ours, theirs, least ratio or None)`.

    A target of a contestant without samples is left out.
    """
    return Comparison(
        group,
        title,
        unit,
        tuple(
            Contestant(
                name, Spread.of([s.per_wall_s for s in of]), Spread.of([s.per_cpu_s for s in of])
            )
            for name, of in samples.items()
        ),
        tuple(
            Ratio(
                ours,
                theirs,
                wall_ratios(samples[ours], samples[theirs]),
                cpu_ratios(samples[ours], samples[theirs]),
                best_ratio(samples[ours], samples[theirs]),
                target,
                target_by,
            )
            for ours, theirs, target in targets
            if ours in samples and theirs in samples
        ),
        note,
    )


def grouped(count: int) -> str:
    """A whole number with its digits in groups, as in 10 000."""
    return f"{count:,}".replace(",", " ")


def to_json(results: Results) -> str:
    """The results as JSON; every row says its kind, and whether its targets were met."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "machine": dict(results.machine),
            "options": dict(results.options),
            "rows": [_row_object(row) for row in results.rows],
        },
        indent=1,
    )


def _row_object(row: Row) -> dict[str, Any]:
    made = {"kind": type(row).__name__.lower(), **dataclasses.asdict(row)}
    if isinstance(row, Comparison):
        for ratio, shown in zip(row.ratios, made["ratios"], strict=True):
            shown["met"] = ratio.met
    elif isinstance(row, Fact | Change):
        made["met"] = row.met
    return made


def to_markdown(results: Results, headings: Mapping[str, str]) -> str:
    """The results as tables; `headings` maps each group to its title and explanation."""
    lines = [
        "# Benchmark results",
        "",
        "Written by `python -m benchmarks`; `README.md` beside this file says how to read it.",
        "Figures are medians over the rounds; brackets hold the lowest and the highest round.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in results.machine.items()),
        *(f"| {name} | {value} |" for name, value in results.options.items()),
        "",
    ]
    for group, heading in headings.items():
        rows = [row for row in results.rows if row.group == group]
        if rows:
            lines += [f"## {heading}", "", *_group_lines(rows)]
    return "\n".join(lines)


def _group_lines(rows: Sequence[Row]) -> list[str]:
    lines: list[str] = []
    for comparison in (row for row in rows if isinstance(row, Comparison)):
        lines += [f"### {comparison.title}", "", *_comparison_lines(comparison), ""]
    facts = [row for row in rows if isinstance(row, Fact)]
    if facts:
        lines += ["| fact | measured | limit | |", "|---|---|---|---|"]
        lines += [_fact_line(fact) for fact in facts]
        lines.append("")
    changes = [row for row in rows if isinstance(row, Change)]
    if changes:
        lines += [
            f"| {changes[0].group} | before | after | ratio | best runs | limit | |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_change_line(change) for change in changes]
        lines.append("")
    for row in rows:
        if isinstance(row, Skipped):
            lines += [f"**{'Failed' if row.failed else 'Skipped'}:** {row.reason}", ""]
    return lines


def _comparison_lines(row: Comparison) -> list[str]:
    lines = [f"| | {row.unit}/s | {row.unit} per CPU s |", "|---|---|---|"]
    lines += [
        f"| {one.name} | {spread_text(one.per_wall_s)} | {spread_text(one.per_cpu_s)} |"
        for one in row.contestants
    ]
    if row.ratios:
        lines += [
            "",
            "| ratio | by time | by CPU | best rounds | target | |",
            "|---|---|---|---|---|---|",
        ]
    for ratio in row.ratios:
        target = "" if ratio.target is None else f"≥ {ratio.target:g} by {_BY[ratio.target_by]}"
        lines.append(
            f"| {ratio.ours} / {ratio.theirs} | {spread_text(ratio.wall)} "
            f"| {spread_text(ratio.cpu)} | {number_text(ratio.best)} | {target} "
            f"| {_VERDICT[ratio.met]} |"
        )
    if row.note:
        lines += ["", row.note]
    return lines


def _fact_line(fact: Fact) -> str:
    limit = "" if fact.limit is None else f"< {fact.limit:g} {fact.unit}"
    title = f"{fact.title} ({fact.note})" if fact.note else fact.title
    return f"| {title} | {spread_text(fact.value)} {fact.unit} | {limit} | {_VERDICT[fact.met]} |"


def _change_line(change: Change) -> str:
    title = change.title if change.measure == "lower" else f"{change.title}, by {change.measure}"
    cells = (
        title,
        f"{spread_text(change.before)} {change.unit}",
        f"{spread_text(change.after)} {change.unit}",
        spread_text(change.ratio),
        number_text(change.best),
        f"≥ {change.limit:g}",
        _VERDICT[change.met],
    )
    return f"| {' | '.join(cells)} |"


_BY = {"wall": "time", "cpu": "CPU"}
_VERDICT = {True: "met", False: "**missed**", None: ""}


def spread_text(spread: Spread) -> str:
    """The median, with the lowest and the highest in brackets where they differ."""
    low, middle, high = map(number_text, operator.attrgetter("low", "median", "high")(spread))
    return middle if low == high else f"{middle} ({low}–{high})"


def number_text(value: float) -> str:
    """Three digits, or all digits of a whole number in groups."""
    if value >= 1000:
        return grouped(round(value))
    return f"{value:.3g}"
