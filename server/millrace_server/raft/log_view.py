"""What the core asks of the metadata log; the shell answers from its partition."""

from __future__ import annotations

from typing import Protocol

from millrace_server.log.epochs import EpochEnd
from millrace_server.raft.messages import LogPosition, SnapshotId


class LogView(Protocol):
    """The log of one replica, as it is at the moment. `durable_offset <= end_offset`."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def durable_offset(self) -> int:
        """Every record before it is on the disk."""

    @property
    def position(self) -> LogPosition:
        """Where the log ends. Of a log without records the epoch is that of the snapshot that it
        begins behind, 0 if it begins at offset 0."""

    def end_offset_for(self, epoch: int) -> EpochEnd | None:
        """See `log.epochs.EpochTable.end_offset_for`."""

    def newest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot that is whole, None if there is none."""
