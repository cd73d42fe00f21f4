"""What an import says while it runs, where no terminal is."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.records import TopicPartition
from millrace_spark.pipeline import progress as module
from millrace_spark.pipeline.directory import LandingDirectory
from millrace_spark.pipeline.landing_task import Landed
from millrace_spark.pipeline.ledger import Landing, Span
from millrace_spark.pipeline.progress import Progress
from millrace_spark.ranges import OffsetRange

LANDING = Landing(
    7,
    {TopicPartition("clicks", 0): Span("t1", 0, 300)},
    (OffsetRange("clicks", "t1", 0, 0, 100), OffsetRange("clicks", "t1", 0, 100, 300)),
)


def test_lines_tell_rows_rate_and_lag_of_ranges_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LINE_S", 0)
    directory = LandingDirectory(str(tmp_path))
    with Progress().watching_landing(directory, LANDING):
        directory.mark(7, 1, Landed(190, 1_000, 1).encode())
        directory.mark(7, 0, "spoiled by a power cut")
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("importing: 190 rows, ")
    assert captured.err.splitlines()[-1].endswith(" rows/s, lag 100")
    assert captured.out == ""


def test_a_quiet_import_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LINE_S", 0)
    quiet = Progress(is_quiet=True)
    quiet.say("group import-clicks")
    with quiet.watching_landing(LandingDirectory(str(tmp_path)), LANDING):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_watcher_that_fails_does_not_fail_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    def look() -> module.Seen:
        raise OSError("the directory is gone")

    with Progress().watching("exporting", look, total=None):
        pass
    assert capsys.readouterr().err == ""
