"""The page of the peers: goals, tables and plots are made of rows alone."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.peers.bounds import BOUNDS
from benchmarks.peers.command import main
from benchmarks.peers.goals import CPU, GOALS, PRODUCE, RATE, SMALL, Goal, Result, results
from benchmarks.peers.page import JSON_NAME, PAGE_NAME, markdown, write
from benchmarks.peers.plots import Bar, Chart, svg
from benchmarks.peers.rows import Different, Row, Run, Skipped, ratio
from benchmarks.peers.workloads import HEADINGS, latency
from benchmarks.samples import Spread

OURS = "millrace send_many"
P99 = "p99 ms"


def _row(way: str, *rates: float, workload: str = "produce", case: str = SMALL) -> Row:
    peer = "millrace" if way.startswith("millrace") else "Apache Kafka"
    return Row(workload, case, way, peer, "page cache", {RATE: list(rates)}, 1_234_567)


def _run(*rows: Row) -> Run:
    run = Run({"CPUs": "2"}, {"scale": "tiny"}, {"millrace": "0.1", "Apache Kafka": "4.3.1"})
    run.rows += rows
    return run


def _first(run: Run) -> Result:
    return results(run)[0]


def test_a_ratio_pairs_the_rounds_that_ran_next_to_each_other() -> None:
    # The machine is three times slower in the second round, for both.
    ours, theirs = _row(OURS, 300.0, 100.0), _row(PRODUCE, 100.0, 33.0)
    assert ratio(ours, theirs, RATE) == Spread.of([3.0, 100 / 33])


def test_a_goal_of_a_rate_is_met_from_its_limit_on() -> None:
    assert _first(_run(_row(OURS, 220.0), _row(PRODUCE, 100.0))).met is True
    assert _first(_run(_row(OURS, 219.0), _row(PRODUCE, 100.0))).met is False


def test_a_goal_of_a_cost_is_met_down_from_its_limit() -> None:
    goal = next(goal for goal in GOALS if goal.figure == CPU)
    spread = Spread.of([1.0])
    below, above = Spread.of([goal.limit]), Spread.of([goal.limit + 0.01])
    assert Result(goal, spread, spread, below).met is True
    assert Result(goal, spread, spread, above).met is False


def test_an_absolute_goal_does_not_depend_on_the_peer() -> None:
    goal = Goal("CPU", "latency", SMALL, CPU, "millrace", None, 80.0)
    assert Result(goal, Spread.of([79.0]), None, None).met is True
    assert Result(goal, Spread.of([81.0]), Spread.of([900.0]), Spread.of([0.1])).met is False


def test_a_goal_without_both_rows_is_not_measured() -> None:
    assert _first(_run(_row(OURS, 220.0))).met is None
    assert _first(_run()).met is None


def test_every_goal_is_about_a_workload_of_the_page() -> None:
    assert {goal.workload for goal in GOALS} <= set(HEADINGS)
    assert len({goal.title for goal in GOALS}) == len(GOALS)


def test_the_page_has_goals_durabilities_and_counts() -> None:
    run = _run(_row(OURS, 250.0, 240.0), _row(PRODUCE, 100.0, 100.0))
    run.skipped.append(Skipped("NATS JetStream", "no nats-server on the PATH"))
    page = markdown(run)
    goal = "| Produce 100 B, send_many | 245 (240–250) | 100 | 2.45 (2.4–2.5) | ≥ 2.2 | met |"
    assert goal in page
    assert f"### {SMALL}" in page
    assert f"| {OURS} | page cache | 245 (240–250) | 1 234 567 |" in page
    assert "- NATS JetStream: no nats-server on the PATH" in page
    assert not run.failed


def test_what_bounds_a_goal_is_on_the_page_where_it_was_missed() -> None:
    title = "Produce 100 B, send"
    assert set(BOUNDS) <= {goal.title for goal in GOALS}
    missed = f"- {title}: 1.4, asked ≥ 1.5. {BOUNDS[title]}"
    theirs = _row(PRODUCE, 100.0)
    assert missed in markdown(_run(_row("millrace send", 140.0), theirs)).splitlines()
    assert BOUNDS[title] not in markdown(_run(_row("millrace send", 150.0), theirs))


def test_a_way_without_a_figure_has_an_empty_cell() -> None:
    other = Row("produce", SMALL, "other", "other", "fsync", {P99: [1.5]})
    lines = markdown(_run(_row(OURS, 250.0), other)).splitlines()
    assert "| other | fsync |  | 1.5 |  |" in lines


def test_a_failed_way_is_named_and_fails_the_run() -> None:
    run = _run()
    run.skipped.append(Skipped("produce: Kafka", "Mismatch: 9 records of 10", failed=True))
    assert run.failed
    assert "- **Failed:** produce: Kafka: Mismatch: 9 records of 10" in markdown(run)


def test_the_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    run = _run(_row(OURS, 250.0), _row(PRODUCE, 100.0))
    run.rows.append(
        Row("latency", latency.STEADY, "millrace", "millrace", "fsync", {P99: [0.5, 5.0]})
    )
    run.skipped.append(Skipped("spark", "no java"))
    write(run, tmp_path)
    text = (tmp_path / JSON_NAME).read_text()
    assert Run.of_json(text) == run
    page = (tmp_path / PAGE_NAME).read_text()
    for name in ("produce", "latency"):
        assert f"plots/{name}.svg" in page
        root = ElementTree.fromstring((tmp_path / "plots" / f"{name}.svg").read_text())
        assert root.tag.endswith("svg")
    assert "plots/consume.svg" not in page


def test_a_page_is_written_anew_from_its_figures(tmp_path: Path) -> None:
    write(_run(_row(OURS, 250.0), _row(PRODUCE, 100.0)), tmp_path)
    page = tmp_path / PAGE_NAME
    before = page.read_text()
    page.unlink()
    assert main(["--render", str(tmp_path / JSON_NAME)]) == 0
    assert page.read_text() == before


def test_figures_of_another_schema_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / JSON_NAME
    file.write_text('{"schema": 0}')
    assert main(["--render", str(file)]) == 2
    assert "measure again" in capsys.readouterr().err


def _widths(chart: Chart) -> list[float]:
    root = ElementTree.fromstring(svg(chart))
    # The first rectangle is the background.
    return [float(one.attrib["width"]) for one in root.iter() if one.tag.endswith("rect")][1:]


def test_a_run_of_some_workloads_leaves_the_others_as_they_were() -> None:
    kept = _run(_row(OURS, 1.0), _row(OURS, 2.0, workload="consume"))
    kept.skipped += [Skipped("consume, x: NATS", "slow"), Skipped("produce, x: Redis", "gone")]
    now = _run(_row(OURS, 3.0, workload="consume"))
    both = now.beside(kept, ["consume"])
    assert [(row.workload, row.figures[RATE]) for row in both.rows] == [
        ("produce", [1.0]),
        ("consume", [3.0]),
    ]
    assert both.skipped == [Skipped("produce, x: Redis", "gone")]
    assert both.options["workloads"] == "produce, consume"


def test_figures_of_another_version_do_not_belong_on_the_page() -> None:
    now, kept = _run(), _run()
    now.machine, kept.machine = {"load before the run": "1"}, {"load before the run": "2"}
    now.check_like(kept)
    kept.peers["millrace"] = "0.0"
    with pytest.raises(Different, match=r"^millrace: 0\.1 now, and 0\.0 in the figures"):
        now.check_like(kept)


@pytest.mark.parametrize("arguments", [["--add"], ["--add", "--out", "no-such-directory"]])
def test_without_figures_nothing_is_added(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("--add: ")


def test_bars_are_as_long_as_their_values() -> None:
    bars = [Bar(name, "millrace", Spread.of([value])) for name, value in (("a", 50), ("b", 200))]
    short, long = _widths(Chart("c", "C", "u", [("group", bars)]))
    assert long == pytest.approx(4 * short, rel=0.01)


def test_equal_ratios_are_equal_distances_on_a_logarithmic_scale() -> None:
    values = (1.0, 10.0, 100.0)
    bars = [Bar(str(value), "other", Spread.of([value])) for value in values]
    one, ten, hundred = _widths(Chart("c", "C", "u", [("group", bars)], is_logarithmic=True))
    assert one > 0
    assert ten - one == pytest.approx(hundred - ten, abs=0.2)


def test_labels_are_escaped() -> None:
    bars = [Bar("<&>", "millrace", Spread.of([1.0]))]
    root = ElementTree.fromstring(svg(Chart("c", "a < b", "u", [("g", bars)])))
    assert {"<&>", "a < b"} <= {one.text for one in root.iter()}


def test_a_chart_without_bars_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a bar"):
        svg(Chart("empty", "Empty", "u", [("group", [])]))
