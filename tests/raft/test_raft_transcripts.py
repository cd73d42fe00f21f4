"""A replica's effects, event by event; `transcript` has the format."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace_server.raft.roles import IllegalTransition
from tests.raft.mutants import commits_records_of_older_epochs
from tests.raft.transcript import replayed

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


def test_transcript_shows_a_commit_of_older_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (HERE / "older_epochs.txt").read_text()
    commits_records_of_older_epochs(monkeypatch.setattr)
    assert "commit before 2" in replayed(text)
    assert "commit before 2" not in text


def test_a_second_leader_of_an_epoch_stops_the_replica() -> None:
    with pytest.raises(IllegalTransition, match="brokers 1 and 3 both lead epoch 4"):
        replayed("> start 2 of 1 2 3 epoch 4 leader 1\n> begin 3 epoch 4\n")
