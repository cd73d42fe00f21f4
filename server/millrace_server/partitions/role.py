"""The role of a replica: the leader serves clients, a follower copies the leader's log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What this broker does for a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class Leadership:
    """A role in one leader epoch. `leader_id` is the broker that leads, None if that is this one.

    Invariant: a replica's epochs never go back.
    """

    role: Role
    epoch: int
    leader_id: int | None = None

    def check_next(self, epoch: int) -> None:
        """Raises `ValueError` unless `epoch` may follow."""
        if epoch < self.epoch:
            raise ValueError(f"leader epoch {epoch} is older than the partition's, {self.epoch}")
