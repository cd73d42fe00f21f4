"""What a partition with several replicas asks the code that replicates it."""

from __future__ import annotations

from typing import Protocol


class ReplicaHooks(Protocol):
    """What decides about the high watermark of a partition with several replicas."""

    def check_append(self) -> None:
        """Raises `ApiError` unless an append with acks=all can be acked."""

    def check_end_known(self) -> None:
        """Raises `ApiError` while it is not known how far the leader's log is committed."""

    def on_appended(self) -> None:
        """The leader's log has grown."""

    def on_stored(self) -> None:
        """More of the log is stored as the topic demands, or as much as before."""
