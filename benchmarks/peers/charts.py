"""Which charts the page has: throughput, latency, cost for each GiB, scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.peers.plots import Bar, Chart
from benchmarks.peers.rows import Row, Run, cases_of
from benchmarks.peers.scale import KIB, Case
from benchmarks.peers.workloads import latency

_Groups = Sequence[tuple[str, Sequence[Bar]]]


def charts(run: Run) -> list[Chart]:
    """The charts that have rows; those of workloads that did not run are left out."""
    return [chart for chart in _all(run) if any(bars for _, bars in chart.groups)]


def _all(run: Run) -> Iterator[Chart]:
    base = [Case().title, Case(KIB).title]
    for workload in ("produce", "consume"):
        groups = [(case, _bars(run, workload, case, "records/s")) for case in base]
        yield Chart(workload, workload.capitalize(), "records/s", groups)
    steady = latency.STEADY
    groups = [
        (figure, _bars(run, "latency", steady, f"{figure} ms"))
        for figure in ("p50", "p99", "p99.9")
    ]
    yield Chart("latency", f"Latency: {steady}", "ms, logarithmic", groups, is_logarithmic=True)
    loaded = [
        (latency.loaded_title(load), _bars(run, "latency", latency.loaded_title(load), "p99 ms"))
        for load in latency.LOADS
    ]
    title = "p99 latency at a share of each one's peak"
    yield Chart("loaded-latency", title, "ms, logarithmic", loaded, is_logarithmic=True)
    costs = [
        (f"{workload}, {base[1]}", _bars(run, workload, base[1], "server CPU s/GiB"))
        for workload in ("produce", "consume")
    ]
    yield Chart("cost", "CPU time of the server", "CPU seconds per GiB of values", costs)
    for workload in ("produce", "consume"):
        title = f"{workload.capitalize()}: sizes, partitions, clients, codecs"
        yield Chart(f"{workload}-scaling", title, "MiB/s of values", _scaling(run, workload))


def _bars(
    run: Run, workload: str, case: str, figure: str, keep: Callable[[Row], bool] = lambda row: True
) -> list[Bar]:
    return [
        Bar(row.way, row.peer, row.spread(figure))
        for row in run.rows
        if (row.workload, row.case) == (workload, case) and figure in row.figures and keep(row)
    ]


def _scaling(run: Run, workload: str) -> _Groups:
    """The main ways in all cases: those that run in the cases beside the base ones."""
    base = {Case().title, Case(KIB).title}
    rows = [row for row in run.rows if row.workload == workload]
    main = {row.way for row in rows if row.case not in base}
    return [
        (case, _bars(run, workload, case, "MiB/s", lambda row: row.way in main))
        for case in cases_of(rows)
        if main
    ]
