"""The times of the quorum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Times in milliseconds. The defaults are Kafka's, but for `notice_ms`, which it lacks.

    An election timeout is drawn from `election_timeout_ms` to twice that, so that two replicas
    rarely ask for votes at the same moment.
    """

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    """Without a response for so long a follower asks for votes, and a leader that a majority has
    not fetched from resigns."""
    retry_ms: int = 500
    """When a request without a response is sent again."""
    fetch_wait_ms: int = 500
    """How long a leader holds back a fetch that has nothing to tell."""
    notice_ms: int = 100
    """How long a follower whose leader's process is gone waits, for the others to notice it."""
