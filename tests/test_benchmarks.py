"""The benchmark harness: its arithmetic, its results file, and that each yardstick works."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks import kafka_group, spark_group
from benchmarks.__main__ import HEADINGS, main
from benchmarks.apache_kafka import NoKafka
from benchmarks.bare import bare_server
from benchmarks.batches import batch_of
from benchmarks.checkout import ROOT, Checkout, checkout_at
from benchmarks.machine import machine_facts
from benchmarks.pairs import AFTER, BEFORE, run_pairs
from benchmarks.processes import measured, tree_cpu_s
from benchmarks.restart import CHECKPOINT_BATCHES, Snapshot, batch_counts
from benchmarks.results import (
    Change,
    Fact,
    Results,
    Row,
    Skipped,
    compare,
    to_json,
    to_markdown,
)
from benchmarks.samples import Sample, Spread, best_ratio, interleave, wall_ratios
from benchmarks.session import TINY, Session, open_session
from benchmarks.wire import UnexpectedResponse, connect, pump
from millrace_protocol.records import check_produced_batch
from tests.quick_spark import needs_java


def test_a_ratio_pairs_the_rounds_that_ran_next_to_each_other() -> None:
    # The machine is three times slower in the second round, for both.
    ours = [Sample(10, 1.0, 1.0), Sample(10, 3.0, 3.0)]
    theirs = [Sample(10, 2.0, 1.0), Sample(10, 6.0, 3.0)]
    assert wall_ratios(ours, theirs) == Spread(2.0, 2.0, 2.0)


def test_the_best_rounds_are_compared_wherever_they_stand() -> None:
    ours = [Sample(10, 1.0, 1.0), Sample(10, 9.0, 9.0)]
    theirs = [Sample(10, 7.0, 1.0), Sample(10, 2.0, 3.0)]
    assert best_ratio(ours, theirs) == 2.0


def test_the_first_turn_goes_round() -> None:
    order: list[str] = []

    def run(name: str) -> Sample:
        order.append(name)
        return Sample(1, 1, 1)

    samples = interleave({name: partial(run, name) for name in "abc"}, 3)
    assert "".join(order) == "abcbcacab"
    assert {name: len(of) for name, of in samples.items()} == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize("size", [169, 4 << 10, 64 << 10, 1 << 20])
def test_a_prepared_batch_has_the_size_asked_for_and_a_broker_takes_it(size: int) -> None:
    batch, records = batch_of(size)
    header = check_produced_batch(batch, max_bytes=size)
    assert (header.size_bytes, header.record_count) == (size, records)


def test_the_bare_loops_response_every_request_with_bytes_of_the_right_size(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    stored.write_bytes(bytes(8_000))
    log = tmp_path / "log"
    loops = (
        ("sendfile", (10, 24, 1_000, str(stored)), 1_024),
        ("append", (10, 16, 8, 1, str(tmp_path / "appended")), 16),
        ("reply", (10, 32), 32),
    )
    for kind, arguments, response_size in loops:
        with bare_server(log, kind, *arguments) as (address, pid), connect(address) as sock:
            load = partial(pump, sock, [bytes(10)], in_flight=4, response_size=response_size)
            sample = measured(pid, 20, partial(load, count=20))
        assert sample.units == 20
        assert sample.wall_s > 0
        assert sample.cpu_s > 0


@pytest.mark.parametrize("checkpoints", [3, 7, 320])
def test_every_partition_is_killed_one_batch_short_of_a_checkpoint(checkpoints: int) -> None:
    counts = batch_counts(checkpoints * CHECKPOINT_BATCHES, 3)
    assert sum(counts) == checkpoints * CHECKPOINT_BATCHES - 3
    assert {count % CHECKPOINT_BATCHES for count in counts} == {CHECKPOINT_BATCHES - 1}


def test_few_batches_are_shared_out_evenly() -> None:
    assert batch_counts(CHECKPOINT_BATCHES, 4) == [CHECKPOINT_BATCHES // 4] * 4
    assert batch_counts(1, 4) == [1] * 4


def test_every_start_begins_with_the_files_of_the_killed_broker(tmp_path: Path) -> None:
    segment, checkpoint = tmp_path / "a" / "0.log", tmp_path / "a" / "checkpoint"
    segment.parent.mkdir()
    segment.write_bytes(b"batches" + bytes(9))
    checkpoint.write_bytes(b"old")
    snapshot = Snapshot(tmp_path)
    segment.write_bytes(b"batches")
    checkpoint.write_bytes(b"of the start")
    (tmp_path / "a" / "0.index").write_bytes(b"new")
    snapshot.restore()
    assert segment.read_bytes() == b"batches" + bytes(9)
    assert checkpoint.read_bytes() == b"old"
    assert not (tmp_path / "a" / "0.index").exists()


def test_an_response_of_another_size_stops_the_load(tmp_path: Path) -> None:
    with (
        bare_server(tmp_path / "log", "reply", 10, 33) as (address, _),
        connect(address) as sock,
        pytest.raises(UnexpectedResponse, match="of responses where 96 were due"),
    ):
        pump(sock, [bytes(10)], count=3, in_flight=3, response_size=32)


def test_a_target_is_judged_by_the_measure_it_names() -> None:
    samples = {"ours": [Sample(4, 1.0, 4.0)], "theirs": [Sample(2, 1.0, 1.0)]}
    by_wall = compare("fetch", "row", "MB", samples, [("ours", "theirs", 1.5)])
    by_cpu = compare("fetch", "row", "MB", samples, [("ours", "theirs", 1.5)], target_by="cpu")
    assert (by_wall.ratios[0].met, by_cpu.ratios[0].met) == (True, False)


def test_the_results_name_missed_targets_and_skipped_rows(tmp_path: Path) -> None:
    results = Results(machine_facts(tmp_path), {"scale": "tiny"})
    samples = {"ours": [Sample(1, 1.0, 1.0)], "theirs": [Sample(2, 1.0, 1.0)]}
    results.rows = [
        compare("fetch", "Slow row", "MB", samples, [("ours", "theirs", 0.7)]),
        Fact("footprint", "Memory", "MiB", Spread(90.0, 80.0, 95.0), 80.0),
        Skipped("clients", "aiokafka not installed"),
    ]
    read = json.loads(to_json(results))
    assert [row["kind"] for row in read["rows"]] == ["comparison", "fact", "skipped"]
    assert read["rows"][0]["ratios"][0]["met"] is False
    assert read["rows"][1]["met"] is False
    markdown = to_markdown(results, HEADINGS)
    assert "| ours / theirs | 0.5 | 0.5 | 0.5 | ≥ 0.7 by time | **missed** |" in markdown
    assert "| Memory | 90 (80–95) MiB | < 80 MiB | **missed** |" in markdown
    assert "**Skipped:** aiokafka not installed" in markdown
    assert not results.failed


@pytest.mark.parametrize(
    "groups",
    [
        ("fetch", "requests"),
        pytest.param(
            ("produce", "latency", "footprint", "connections", "groups", "restart", "sql"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_run_measures_a_real_broker_and_writes_both_files(
    tmp_path: Path, groups: tuple[str, ...]
) -> None:
    only = [argument for group in groups for argument in ("--only", group)]
    assert main(["--scale", "tiny", "--out", str(tmp_path), *only]) == 0
    read = json.loads((tmp_path / "results.json").read_text())
    assert {row["group"] for row in read["rows"]} == set(groups)
    for row in read["rows"]:
        if row["kind"] == "comparison":
            assert all(one["per_wall_s"]["low"] > 0 for one in row["contestants"])
            assert all(ratio["cpu"]["low"] > 0 for ratio in row["ratios"])
    written = (tmp_path / "RESULTS.md").read_text()
    assert all(HEADINGS[group] in written for group in groups)
    assert str(tmp_path) not in written


def test_without_apache_kafka_the_two_protocols_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise NoKafka("there is no Java here")

    monkeypatch.setattr(kafka_group, "apache_kafka", none)
    assert main(["--scale", "tiny", "--out", str(tmp_path), "--only", "kafka"]) == 0
    skipped, compared = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert "there is no Java here" in skipped["reason"]
    assert compared["ratios"][0]["wall"]["low"] > 0


@pytest.mark.long
def test_a_cluster_is_measured_while_its_brokers_end(tmp_path: Path) -> None:
    assert main(["--scale", "tiny", "--out", str(tmp_path), "--only", "cluster"]) == 0
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {row["kind"] for row in rows} == {"fact", "comparison"}
    found = {row["title"]: row["value"]["high"] for row in rows if row["kind"] == "fact"}
    for name in ("errors seen by the application", "acked records lost", "records doubled"):
        assert (found[f"Kills: {name}"], found[f"Rolling restart: {name}"]) == (0, 0)
    assert found["p99, kill -9 of a leader to the next ack of its partition"] > 0


@pytest.mark.long
def test_two_checkouts_are_measured_in_pairs(tmp_path: Path) -> None:
    arguments = ["--against", str(ROOT), "--scale", "tiny", "--pairs", "2", "--out", str(tmp_path)]
    assert main([*arguments, "--only", "requests"]) == 0
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {row["kind"] for row in rows} == {"change"}
    assert {row["measure"] for row in rows} == {"time", "CPU"}
    for row in rows:
        assert min(row[part]["low"] for part in ("before", "after", "ratio")) > 0
    assert "Hello, 16 in flight, by CPU" in (tmp_path / "RESULTS.md").read_text()


def _paired(
    group: Callable[[Session], Iterator[Row]], count: int = 1
) -> tuple[list[Change], list[Skipped]]:
    checkouts = {BEFORE: Checkout(("old",)), AFTER: Checkout(("new",))}
    rows = run_pairs("g", group, checkouts, scale=TINY, parent=None, count=count)
    changes = [row for row in rows if isinstance(row, Change)]
    return changes, [row for row in rows if isinstance(row, Skipped)]


def test_a_change_above_one_is_better_whatever_is_measured() -> None:
    def group(session: Session) -> Iterator[Row]:
        (name,) = session.checkout.serve
        better = 2.0 if name == "new" else 1.0
        yield Fact("g", "wait", "ms", Spread.of([4 / better]))
        samples = {"millrace": [Sample(better, 1.0, 1.0)], "loop": [Sample(9.0, 1.0, 1.0)]}
        yield compare("g", "rate", "MB", samples, [])

    changes, _ = _paired(group)
    assert [(change.title, change.measure) for change in changes] == [
        ("wait", "lower"),
        ("rate", "time"),
        ("rate", "CPU"),
    ]
    assert [change.ratio.median for change in changes] == pytest.approx([2, 2, 2])
    assert [change.best for change in changes] == pytest.approx([2, 2, 2])
    assert [change.met for change in changes] == [True, True, True]


def test_the_pairs_take_turns_and_a_row_runs_beside_the_same_row() -> None:
    order: list[str] = []

    def group(session: Session) -> Iterator[Row]:
        for title in ("one", "two"):
            order.append(f"{session.checkout.serve[0]} {title}")
            yield Fact("g", title, "ms", Spread.of([1.0]))

    _paired(group, count=2)
    assert order == [
        *("old one", "new one", "old two", "new two"),
        *("new one", "old one", "new two", "old two"),
    ]


def test_rows_that_only_one_checkout_can_run_are_marked() -> None:
    def group(session: Session) -> Iterator[Row]:
        yield Fact("g", "both", "ms", Spread.of([1.0]))
        if session.checkout.serve == ("old",):
            raise ValueError("no such thing")
        yield Fact("g", "new alone", "ms", Spread.of([1.0]))

    changes, skipped = _paired(group)
    assert [change.title for change in changes] == ["both"]
    assert [(row.reason, row.failed) for row in skipped] == [
        ("before: ValueError: no such thing", False),
        ("after alone: new alone", False),
    ]


def test_another_checkout_is_refused_where_there_are_no_sources(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no checkout of millrace"):
        checkout_at(tmp_path)


@pytest.mark.long
def test_clients_are_measured_beside_the_peers(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    pytest.importorskip("aiokafka")
    assert main(["--scale", "tiny", "--out", str(tmp_path), "--only", "clients"]) == 0
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    pairs = {(ratio["ours"], ratio["theirs"]) for row in rows for ratio in row["ratios"]}
    assert ("millrace send", "confluent produce") in pairs
    assert ("millrace async for", "aiokafka getone") in pairs


def test_the_processor_time_of_a_tree_has_children_that_run_and_that_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.1: pass\n"
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
    before_s = tree_cpu_s(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", f"{nested}print(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        running_s = tree_cpu_s(os.getpid()) - before_s
        process.communicate(b"\n")
    assert running_s >= 0.1
    assert tree_cpu_s(os.getpid()) - before_s >= 0.1


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1_200)
@needs_java
def test_the_connector_is_measured_beside_prebuilt_batches(
    tmp_path: Path, quick_spark: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    for name, value in quick_spark.items():
        monkeypatch.setenv(name, value)
    assert main(["--scale", "tiny", "--out", str(tmp_path), "--only", "spark"]) == 0
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["kind"] for row in rows] == ["comparison"] * 3 + ["fact"] * 2
    pairs = {(ratio["ours"], ratio["theirs"]) for row in rows[:3] for ratio in row["ratios"]}
    assert {("millrace", "prebuilt Arrow"), ("millrace", "a sink that drops")} <= pairs
    for row in rows[:3]:
        assert all(one["per_cpu_s"]["low"] > 0 for one in row["contestants"])
    assert str(tmp_path) not in (tmp_path / "RESULTS.md").read_text()


def test_prebuilt_batches_have_the_bounds_of_the_connectors() -> None:
    pytest.importorskip("pyarrow")
    from benchmarks import spark_rows
    from millrace._arrow import columns as arrow_columns

    ours = (arrow_columns.ROWS_MAX, arrow_columns.BATCH_BYTES_MAX)
    assert ours == (spark_rows.ROWS_MAX, spark_rows.BATCH_BYTES_MAX)


def test_without_spark_its_group_names_the_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with open_session(TINY, tmp_path) as session:
        (row,) = spark_group.run(session)
    assert isinstance(row, Skipped)
    assert not row.failed
    assert "pip install" in row.reason
