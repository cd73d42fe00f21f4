"""The in-sync replicas of a partition as its leader knows them (KIP-497).

Owns the committed ISR, what is proposed, and the *maximal* ISR. Refuses to know why a replica joins
or leaves: the leader decides that.

    committed   what the controller has said last
    proposed    the one proposal without an outcome
    undecided   members of earlier proposals whose outcome is not known
    maximal     all of them: each may be in the ISR that a new leader is elected from

The high watermark waits for the maximal ISR, so a replica may join at any moment without missing a
committed record. A proposal holds for one partition epoch: with a higher one, all earlier proposals
are decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millrace_server.replication.effects import ProposeIsr


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition as the image has it. `isr` is part of `replicas`, and the leader part of both.

    `min_isr` is the topic's `min.insync.replicas`; with fewer replicas than that all must be in
    sync.
    """

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int

    @property
    def isr_needed(self) -> int:
        """The size of the ISR below which nothing is committed (KIP-966)."""
        return min(self.min_isr, len(self.replicas))


class InSyncReplicas:
    """The ISR of a leader, from the election on. At most one proposal has no outcome."""

    def __init__(self, isr: Iterable[int], partition_epoch: int) -> None:
        self.committed = frozenset(isr)
        self.partition_epoch = partition_epoch
        self.proposed: ProposeIsr | None = None
        self.undecided: frozenset[int] = frozenset()
        self.maximal = self.committed

    def commit(self, isr: Iterable[int], partition_epoch: int) -> bool:
        """Takes what the controller says; False if it is not newer than what is known."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.committed = frozenset(isr)
        self.partition_epoch = partition_epoch
        self.proposed = None
        self.undecided = frozenset()
        self._count()
        return True

    def propose(self, proposal: ProposeIsr) -> None:
        """The proposal goes out."""
        self.proposed = proposal
        self._count()

    def end_proposal(self, proposal: ProposeIsr, *, is_decided: bool) -> bool:
        """It was refused, or, unless `is_decided`, it may still be accepted at any time.

        False if it is another one than that without an outcome.
        """
        if proposal is not self.proposed:
            return False
        self.proposed = None
        if not is_decided:
            self.undecided |= frozenset(proposal.broker_ids)
        self._count()
        return True

    def _count(self) -> None:
        proposed = () if self.proposed is None else self.proposed.broker_ids
        self.maximal = self.committed | self.undecided | frozenset(proposed)
