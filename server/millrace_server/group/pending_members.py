"""The member ids that were given to new members, which have not joined with them yet (KIP-394).

Owns their order and their bounds: above that of the broker the id goes that is pending longest,
above the share of a principal the one of that principal. Knows no rule of membership.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from millrace_server.group.group import Group
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.rebalance import Timer
from millrace_server.group.requests import JoinGroup
from millrace_server.group_config import GroupConfig


class PendingMember(NamedTuple):
    """An id, and the principal that has asked for it."""

    group: Group
    member_id: str
    principal: str | None


class PendingMembers:
    """The pending ids of one shard. Invariant: both maps have the same timers."""

    __slots__ = ("_all", "_most", "_of_principal", "_quota")

    def __init__(self, config: GroupConfig, quota: MemoryQuota) -> None:
        self._most = config.pending_members_max
        self._quota = quota
        self._all: dict[Timer, PendingMember] = {}
        """The oldest first."""
        self._of_principal: dict[str | None, dict[Timer, PendingMember]] = {}
        """The same by principal."""

    def add(self, group: Group, member_id: str, principal: str | None) -> Timer:
        """Keeps an id; returns the timer after which it is dropped."""
        timer = _timer(group, member_id)
        pending = PendingMember(group, member_id, principal)
        self._all[timer] = self._of_principal.setdefault(principal, {})[timer] = pending
        self._quota.pending_count += 1
        self._quota.pending_shares.add(principal, 1)
        group.pending_join.add(member_id)
        return timer

    def remove(self, group: Group, member_id: str) -> Timer | None:
        """Forgets an id; returns its timer, None when it was not pending."""
        timer = _timer(group, member_id)
        group.pending_join.discard(member_id)
        pending = self._all.pop(timer, None)
        if pending is None:
            return None
        of_principal = self._of_principal[pending.principal]
        del of_principal[timer]
        if not of_principal:
            del self._of_principal[pending.principal]
        self._quota.pending_count -= 1
        self._quota.pending_shares.add(pending.principal, -1)
        return timer

    def in_the_way_of(self, request: JoinGroup) -> PendingMember | None:
        """The id to drop before the request may have one.

        None also where a bound is reached and none of these ids can go: they are of other shards.
        """
        if not self._quota.pending_shares.has_room(request.principal):
            return self.oldest_of(request.principal)
        return self.oldest() if self._quota.pending_count >= self._most else None

    def oldest(self) -> PendingMember | None:
        """The id that is pending longest."""
        return _first(self._all.values())

    def oldest_of(self, principal: str | None) -> PendingMember | None:
        """The same of those that a principal has asked for."""
        return _first(self._of_principal.get(principal, {}).values())


def _timer(group: Group, member_id: str) -> Timer:
    return Timer("pending join", group.name, member_id)


def _first(pending: Iterable[PendingMember]) -> PendingMember | None:
    return next(iter(pending), None)
