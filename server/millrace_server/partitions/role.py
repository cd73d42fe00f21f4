"""The role of a replica: the leader serves clients, a follower copies the leader's log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import NO_LEADER
from millrace_server.api_error import ApiError


class Role(Enum):
    """What this broker does for a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class Leadership:
    """A role in one leader epoch. `leader_id` is the broker that leads, None if that is this one.
    `is_ending` while this one begins to lead in another epoch: it appends nothing in this one.

    Invariant: a replica's epochs never go back.
    """

    role: Role
    epoch: int
    leader_id: int | None = None
    is_ending: bool = False

    def ending(self) -> Leadership:
        """The same while the next epoch begins."""
        return replace(self, is_ending=True)

    def check_next(self, epoch: int) -> None:
        """Raises `ValueError` unless `epoch` may follow."""
        if epoch < self.epoch:
            raise ValueError(f"leader epoch {epoch} is older than the partition's, {self.epoch}")

    def check_epoch(self, epoch: int, partition: str) -> None:
        """Raises `ApiError` unless `epoch` is this one, or -1: the client knows none (KIP-320)."""
        if epoch in (-1, self.epoch):
            return
        if epoch < self.epoch:
            code, word = ErrorCode.FENCED_LEADER_EPOCH, "older"
        else:
            code, word = ErrorCode.UNKNOWN_LEADER_EPOCH, "newer"
        raise ApiError(
            code,
            f"Leader epoch {epoch} is {word} than the broker's {self.epoch} for {partition}; "
            "refresh the metadata",
        )

    def not_leader(self, partition: str) -> ApiError:
        """The refusal of a client that asks a follower."""
        is_known = self.leader_id not in (None, NO_LEADER)
        leader = f"Broker {self.leader_id}" if is_known else "No broker that is known here"
        return ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{leader} leads partition {partition} in epoch {self.epoch}; refresh the metadata",
        )
