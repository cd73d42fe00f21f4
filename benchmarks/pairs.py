"""Two checkouts in one run: every row of millrace, measured for both, one right after the other.

Owns the order. A group of rows runs twice at the same time, once with each checkout, on a broker of
its own: a row of the one, then the same row of the other. The next pair begins with the other one,
on new processes, because processes of the same sources differ too. A ratio is taken between two
rows that ran next to each other; the figure is the median over the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.checkout import Checkout
from benchmarks.processes import last_words
from benchmarks.results import RATIO_UNIT, Change, Comparison, Fact, Measure, Row, Skipped
from benchmarks.samples import is_millrace
from benchmarks.session import Scale, Session, open_session

Group = Callable[[Session], Iterator[Row]]
BEFORE = "before"
AFTER = "after"
_Figure = tuple[str, str, Measure]
"""Title, unit and measure."""


@dataclass(slots=True)
class Collected:
    """What the pairs of one group found so far."""

    pairs: dict[_Figure, list[tuple[float, float]]] = field(default_factory=dict)
    """Values of before and after."""
    problems: dict[str, bool] = field(default_factory=dict)
    """Sentences about what did not run, and whether it should have."""


def run_pairs(
    name: str,
    group: Group,
    checkouts: Mapping[str, Checkout],
    *,
    scale: Scale,
    parent: Path | None,
    count: int,
) -> list[Row]:
    """The changes of one group, from `BEFORE` to `AFTER`, over `count` pairs."""
    found = Collected()
    for number in range(count):
        order = (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE)
        with ExitStack() as stack:
            rows: dict[str, Iterator[Row]] = {}
            for side in order:
                session = stack.enter_context(open_session(scale, parent, checkouts[side]))
                session.say(f"{name}: pair {number + 1} of {count}, {side}")
                rows[side] = stack.enter_context(closing(_rows(name, group, session)))
            _collect(rows, order, found)
    return [
        *(Change.of(name, *figure, values) for figure, values in found.pairs.items()),
        *(Skipped(name, reason, failed=failed) for reason, failed in found.problems.items()),
    ]


def _rows(name: str, group: Group, session: Session) -> Generator[Row, None, None]:
    """The rows of a group; where it breaks down, the last one says why."""
    try:
        yield from group(session)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        session.say(f"{name} failed: {reason} ({last_words(session.log)})")
        yield Skipped(name, reason, failed=True)


def _collect(rows: Mapping[str, Iterator[Row]], order: tuple[str, str], found: Collected) -> None:
    """Takes a row of each side in turn, until both have no more."""
    running = set(order)
    while running:
        turn: dict[str, dict[_Figure, float]] = {}
        for side in order:
            row = next(rows[side], None) if side in running else None
            if row is None:
                running.discard(side)
            elif isinstance(row, Skipped):
                # What the other checkout lacks is a finding, and what this one lacks is a defect.
                found.problems[f"{side}: {row.reason}"] = row.failed and side == AFTER
            else:
                turn[side] = _figures(row)
        if len(turn) == 2:
            for figure, before in turn[BEFORE].items():
                if figure in turn[AFTER]:
                    found.pairs.setdefault(figure, []).append((before, turn[AFTER][figure]))
        else:
            for side, figures in turn.items():
                for title, _, _ in figures:
                    found.problems[f"{side} alone: {title}"] = False


def _figures(row: Row) -> dict[_Figure, float]:
    """The figures of a row that are millrace's; rates, and facts that are better when lower."""
    if isinstance(row, Fact):
        if row.unit == RATIO_UNIT:
            return {}  # It grows as well when the figure below the line gets better.
        return {(row.title, row.unit, "lower"): row.value.median}
    assert isinstance(row, Comparison)
    made: dict[_Figure, float] = {}
    for one in row.contestants:
        if is_millrace(one.name):
            way = one.name.removeprefix("millrace").strip(", ")
            title = f"{row.title} ({way})" if way else row.title
            made[title, f"{row.unit}/s", "time"] = one.per_wall_s.median
            made[title, f"{row.unit}/CPU s", "CPU"] = one.per_cpu_s.median
    return made
