"""The progress lines of `millrace spark`, where stderr is not a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace._arrow.corrupt_counts import CorruptCounts
from millrace.records import TopicPartition
from millrace_cli import progress_display as module
from millrace_cli.progress import StderrProgress, StderrWarnings
from millrace_spark.pipeline.directory import ImportDirectory
from millrace_spark.pipeline.ledger import ImportBatch, Span
from millrace_spark.pipeline.progress import Counts, NoProgress, import_counts
from millrace_spark.pipeline.range_task import RangeResult
from millrace_spark.reading.ranges import OffsetRange

LANDING = ImportBatch(
    7,
    {TopicPartition("clicks", 0): Span("t1", 0, 300)},
    (OffsetRange("clicks", "t1", 0, 0, 100), OffsetRange("clicks", "t1", 0, 100, 300)),
)


def test_lines_show_rows_rate_and_lag_of_finished_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LINE_S", 0)
    directory = ImportDirectory(str(tmp_path))
    counts = import_counts(directory, LANDING)
    with StderrProgress().watching("importing", counts, total=len(LANDING)):
        directory.mark(7, 1, RangeResult(190, 1_000, 1).encode())
        directory.mark(7, 0, "spoiled by a power cut")
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("importing: 190 rows, ")
    assert captured.err.splitlines()[-1].endswith(" rows/s, lag 100")
    assert captured.out == ""


def test_lines_show_how_many_records_are_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LINE_S", 0)
    directory = ImportDirectory(str(tmp_path))
    counts = import_counts(directory, LANDING)
    with StderrProgress().watching("importing", counts, total=len(LANDING)):
        for index in (0, 1):
            corrupt = CorruptCounts(600 + index, 700)
            directory.mark(7, index, RangeResult(1_000, 1_000, 1, corrupt).encode())
    assert " rows/s, 1,201 corrupt, lag 0" in capsys.readouterr().err.splitlines()[-1]


def test_a_quiet_run_prints_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = StderrWarnings()
    quiet.message("group import-clicks")
    quiet.warning("1 of 3 records has a corrupt value")
    assert capsys.readouterr() == ("", "millrace: 1 of 3 records has a corrupt value\n")


def test_a_run_without_progress_never_polls(capsys: pytest.CaptureFixture[str]) -> None:
    def poll() -> Counts:
        raise AssertionError("polled")

    quiet = NoProgress()
    quiet.message("group import-clicks")
    with quiet.watching("importing", poll, total=300):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_poll_that_fails_does_not_fail_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    def poll() -> Counts:
        raise OSError("the directory is gone")

    with StderrProgress().watching("exporting", poll, total=None):
        pass
    assert capsys.readouterr().err == ""
