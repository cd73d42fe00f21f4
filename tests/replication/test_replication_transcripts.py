"""A replica's effects, event by event; `transcript` has the format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.mutants import serves_every_epoch
from tests.replication.transcript import replayed

HERE = Path(__file__).parent / "transcripts"
TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_replica_does_what_the_transcript_says(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    now = replayed(text)
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(now)
    else:
        assert now == text


def test_transcript_shows_a_fetch_of_another_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (HERE / "fencing.txt").read_text()
    serves_every_epoch(monkeypatch.setattr)
    assert replayed(text) != text
