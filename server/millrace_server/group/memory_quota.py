"""What the groups of one broker hold in memory, all its coordinators together, and whose it is.

Owns the sums and their limits: of the broker, and of each principal. A group belongs to the client
that made it. What its members and its committed offsets take counts for that principal, also where
other principals are its members. The owner is not in the group's records.
After a load a group belongs to the first client that joins it or commits to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group_config import GroupConfig
from millrace_server.principal_shares import Shares


@dataclass(slots=True)
class _GroupMemory:
    """One group. `owner` is None while no principal with a limit has it."""

    owner: str | None = None
    held_bytes: int = 0
    offsets_bytes: int = 0


class MemoryQuota:
    """Limits what is added; what is held already is never refused.

    Invariants: `held_bytes`, of groups and members, and `offsets_bytes`, of committed offsets, are
    the sums over all groups; each share is the sum over the groups of a principal.
    """

    __slots__ = (
        "_config",
        "_groups",
        "_held_shares",
        "_offsets_shares",
        "held_bytes",
        "offsets_bytes",
        "pending_count",
        "pending_shares",
    )

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, _GroupMemory] = {}
        self._held_shares = Shares(config.shares, config.memory_bytes)
        self._offsets_shares = Shares(config.shares, config.offsets_bytes_max)
        self.held_bytes = 0
        self.offsets_bytes = 0
        self.pending_count = 0
        """Member ids given out and not used yet."""
        self.pending_shares = Shares(config.shares, config.pending_members_max)
        """The same by the principal that has asked for them."""

    def owner_of(self, group_id: str) -> str | None:
        """The principal that a group counts for; None for a group without an owner."""
        group = self._groups.get(group_id)
        return None if group is None else group.owner

    def claim(self, group_id: str, principal: str | None) -> bool:
        """Gives a group without an owner to a principal; False when nothing changes."""
        group = self._groups.get(group_id)
        if group is None or group.owner is not None or not self._held_shares.counts(principal):
            return False
        group.owner = principal
        self._held_shares.add(principal, group.held_bytes)
        self._offsets_shares.add(principal, group.offsets_bytes)
        return True

    def hold(self, group_id: str, change: int) -> None:
        """Groups and members take so many bytes more."""
        self.held_bytes += change
        group = self._group(group_id)
        group.held_bytes += change
        self._held_shares.add(group.owner, change)
        self._forget_empty(group_id, group)

    def hold_offsets(self, group_id: str, change: int) -> None:
        """The same for committed offsets."""
        self.offsets_bytes += change
        group = self._group(group_id)
        group.offsets_bytes += change
        self._offsets_shares.add(group.owner, change)
        self._forget_empty(group_id, group)

    def release_offsets(self, group_id: str) -> None:
        """The committed offsets of a group are not held any more."""
        self.hold_offsets(group_id, -self._group(group_id).offsets_bytes)

    def check(self, size_bytes: int, owner: str | None) -> None:
        """Raises `ApiError` unless a principal's groups and members may grow by `size_bytes`."""
        if size_bytes <= 0:
            return
        if self.held_bytes + size_bytes > self._config.memory_bytes:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The groups of this broker and their members take {self.held_bytes} bytes of "
                f"memory of at most {self._config.memory_bytes}, and there is no room for "
                f"{size_bytes} more; delete unused groups, have fewer members, or raise the "
                "broker's group_memory_max_bytes",
            )
        shares = self._held_shares
        if not shares.has_room(owner, size_bytes):
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The groups of {owner} and their members take {shares.held(owner)} bytes of "
                f"memory of at most {shares.most}, its share of group_memory_max_bytes, and there "
                f"is no room for {size_bytes} more; delete unused groups, have fewer members, or "
                "raise the broker's principal_share_percent",
            )

    def offsets_room(self, group_id: str) -> int:
        """By how many bytes the committed offsets of a group may grow."""
        room = self._config.offsets_bytes_max - self.offsets_bytes
        owner, shares = self.owner_of(group_id), self._offsets_shares
        return room if owner is None else min(room, shares.most - shares.held(owner))

    def no_offsets_room(self, group_id: str) -> ApiError:
        """The error of an offset for which there is no room."""
        owner, shares = self.owner_of(group_id), self._offsets_shares
        whose, held, most = "groups", self.offsets_bytes, self._config.offsets_bytes_max
        setting = "offsets_memory_max_bytes"
        if owner is not None and shares.most - shares.held(owner) < most - held:
            whose, held, most = f"groups of {owner}", shares.held(owner), shares.most
            setting = "principal_share_percent"
        return ApiError(
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            f"The offsets that {whose} have committed take {held} bytes of memory of at most "
            f"{most}: there is no room for one more of group {group_id!r}; delete unused groups, "
            f"or raise the broker's {setting}",
        )

    def _group(self, group_id: str) -> _GroupMemory:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _GroupMemory()
        return group

    def _forget_empty(self, group_id: str, group: _GroupMemory) -> None:
        if not (group.held_bytes or group.offsets_bytes):
            del self._groups[group_id]
