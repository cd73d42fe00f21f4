"""Shares: how much of a bound of the broker one principal may use.

A bound that all clients share protects the broker, and one client could use it up alone. So each
principal may use a share of it. Super users are exempt. A broker without authentication cannot tell
its clients apart: all of them are one principal, which may use the whole bound.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareRule:
    """The share of each principal, in percent, and the principals that have no such limit."""

    percent: int = 100
    exempt: frozenset[str] = frozenset()

    def counts(self, principal: str | None) -> bool:
        """Whether a principal is limited to a share."""
        return principal is not None and self.percent < 100 and principal not in self.exempt


NO_SHARES = ShareRule()
"""Every principal may use the whole bound."""


class Shares:
    """What each principal holds of one bound.

    Invariant: `held(p) > 0` for each p that is kept.

    >>> shares = Shares(ShareRule(percent=50), 10)
    >>> shares.add("User:ada", 4)
    >>> shares.has_room("User:ada"), shares.has_room("User:ada", 2)
    (True, False)
    """

    __slots__ = ("_held", "_rule", "most")

    def __init__(self, rule: ShareRule, bound: int) -> None:
        self._rule = rule
        self.resize(bound)
        self._held: dict[str, int] = {}

    def resize(self, bound: int) -> None:
        """Makes each share one of another bound. A principal may hold more than it for a while."""
        self.most = max(1, bound * self._rule.percent // 100)
        """The share of each principal."""

    def counts(self, principal: str | None) -> bool:
        """See `ShareRule.counts`."""
        return self._rule.counts(principal)

    def held(self, principal: str | None) -> int:
        """What a principal holds; 0 for one without a limit."""
        return 0 if principal is None else self._held.get(principal, 0)

    def has_room(self, principal: str | None, more: int = 1) -> bool:
        """Whether a principal may hold `more` than it does."""
        return not self._rule.counts(principal) or self.held(principal) + more <= self.most

    def add(self, principal: str | None, change: int) -> None:
        """Counts what a principal takes, or gives back (`change < 0`)."""
        if principal is None or not self._rule.counts(principal):
            return
        held = self._held.get(principal, 0) + change
        if held:
            self._held[principal] = held
        else:
            self._held.pop(principal, None)
