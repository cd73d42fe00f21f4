"""What a partition with several replicas asks the code that replicates it."""

from __future__ import annotations

import asyncio
from typing import Protocol


class ReplicaHooks(Protocol):
    """What decides about the high watermark of a partition with several replicas."""

    def check_append(self) -> None:
        """Raises `ApiError` unless an append with acks=all can be acked."""

    def check_end_known(self) -> None:
        """Raises `ApiError` while it is not known how far the leader's log is committed."""

    def on_appended(self) -> None:
        """The leader's log has grown."""

    def on_start_moved(self) -> None:
        """The log begins later."""

    def on_start_durable(self) -> None:
        """No crash brings back a record before the log's start, or as many as before."""

    def deleted(self, offset: int) -> asyncio.Future[None]:
        """Is done when no replica in sync brings back a record before `offset`.

        Fails with `ApiError` when this broker no longer leads."""

    def on_stored(self) -> None:
        """More of the log is stored as the topic demands, or as much as before."""
