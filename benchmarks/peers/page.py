"""The page: a table of goals, charts, and a table for each case. Written from a run alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers.bounds import NOTE, bound_of
from benchmarks.peers.charts import charts
from benchmarks.peers.goals import Result, results
from benchmarks.peers.plots import Chart, svg
from benchmarks.peers.rows import Row, Run, cases_of
from benchmarks.peers.workloads import HEADINGS
from benchmarks.results import grouped, spread_text
from benchmarks.samples import Spread

JSON_NAME, PAGE_NAME, PLOTS = "peers.json", "PEERS.md", "plots"
_VERDICTS = {True: "met", False: "**missed**", None: "not measured"}
_INTRODUCTION = """# millrace beside Apache Kafka, Redis Streams and NATS JetStream

Written by `python -m benchmarks --peers`; [README.md](README.md) says how to read it.
All servers and clients run on one machine and take turns, round by round. A figure is the median
over the rounds; brackets hold the lowest and the highest. A ratio is taken between rounds that ran
next to each other. Every topic was read back: its records were counted, and a checksum of their
values was compared with that of the values sent.
"""


def write(run: Run, directory: Path) -> None:
    """Writes the results, the page and its plots into a directory."""
    plots = directory / PLOTS
    plots.mkdir(parents=True, exist_ok=True)
    drawn = charts(run)
    for chart in drawn:
        (plots / f"{chart.name}.svg").write_text(svg(chart))
    (directory / JSON_NAME).write_text(run.to_json() + "\n")
    (directory / PAGE_NAME).write_text(markdown(run, drawn))


def markdown(run: Run, drawn: Sequence[Chart] = ()) -> str:
    """The page; it refers to the charts that were drawn."""
    found = results(run)
    lines = [_INTRODUCTION, "## Goals", "", *_goals(found), ""]
    missed = [result for result in found if result.met is False]
    if missed:
        lines += ["### What bounds the goals that are missed", "", NOTE, ""]
        lines += [*map(_missed, missed), ""]
    lines += ["## Machine and servers", "", "| | |", "|---|---|"]
    facts = {**run.machine, **run.options}
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    lines += ["", "| server | version, and what its durabilities mean |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in run.peers.items()]
    lines.append("")
    if drawn:
        lines += ["## Plots", ""]
        lines += [f"![{chart.title}]({PLOTS}/{chart.name}.svg)\n" for chart in drawn]
    for workload, heading in HEADINGS.items():
        rows = [row for row in run.rows if row.workload == workload]
        if rows:
            lines += [f"## {heading}", ""]
        for case in cases_of(rows):
            lines += [f"### {case}", "", *_table([row for row in rows if row.case == case]), ""]
    if run.skipped:
        lines += ["## What did not run", ""]
        lines += [
            f"- {'**Failed:** ' if one.failed else ''}{one.what}: {one.reason}"
            for one in run.skipped
        ]
        lines.append("")
    return "\n".join(lines)


def _goals(found: Sequence[Result]) -> Iterator[str]:
    yield "| | millrace | Kafka, confluent-kafka | ratio | goal | |"
    yield "|---|---|---|---|---|---|"
    for result in found:
        goal = result.goal
        cells = (
            goal.title,
            _text(result.ours),
            _text(result.theirs),
            _text(result.ratio),
            f"{goal.limit_text}{'' if goal.theirs else ' absolute'}",
            _VERDICTS[result.met],
        )
        yield f"| {' | '.join(cells)} |"


def _missed(result: Result) -> str:
    goal = result.goal
    return f"- {goal.title}: {_text(result.reached)}, asked {goal.limit_text}. {bound_of(result)}"


def _text(spread: Spread | None) -> str:
    return "" if spread is None else spread_text(spread)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """One case: a line for each way, a column for each figure."""
    figures = list(dict.fromkeys(name for row in rows for name in row.figures))
    yield f"| | durability | {' | '.join(figures)} | records checked |"
    yield "|---|---|" + "---|" * (len(figures) + 1)
    for row in rows:
        cells = [_text(row.spread(name)) if row.figures.get(name) else "" for name in figures]
        checked = grouped(row.checked) if row.checked else ""
        yield f"| {row.way} | {row.durability} | {' | '.join(cells)} | {checked} |"
