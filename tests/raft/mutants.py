"""Bugs that Raft implementations have had, planted; the simulation must find each.

Each function breaks the core through the patch that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from millrace_server.raft import following, leading, voting
from millrace_server.raft.effects import Effect, Persist, Truncate
from millrace_server.raft.following import CommittedRecordsLost
from millrace_server.raft.leadership import Leadership
from millrace_server.raft.messages import FetchResponse, LogPosition, Records, VoteRequest
from millrace_server.raft.node import RaftNode
from millrace_server.raft.replica import Replica
from millrace_server.raft.roles import IllegalTransition, Leader, Resigned
from millrace_server.raft.voters import ReplicaKey, VoterSet
from tests.raft.invariants import Violation
from tests.raft.replica_host import ReplicaHost
from tests.raft.replica_log import ReplicaLog
from tests.raft.scenario import run_seed

Patch = Callable[[Any, str, Any], None]


def forgets_its_vote(patch: Patch) -> None:
    """Raft §5.2: the vote is sent and not made durable."""
    take_role = Replica.take_role

    def forgetful(self: Replica, *args: Any, **kwargs: Any) -> None:
        count = len(self.out)
        take_role(self, *args, **kwargs)
        self.out[count:] = [e for e in self.out[count:] if not isinstance(e, Persist)]

    patch(Replica, "take_role", forgetful)


def votes_twice(patch: Patch) -> None:
    """Raft §5.2: every candidate of an epoch gets the vote."""
    patch(voting, "_may_vote", lambda replica, request: not isinstance(replica.role, Leader))


def votes_for_a_shorter_log(patch: Patch) -> None:
    """Raft §5.4.1: the logs are not compared."""
    patch(LogPosition, "__lt__", lambda self, other: False)


def commits_records_of_older_epochs(patch: Patch) -> None:
    """Raft §5.4.2, figure 8: a majority alone commits. A transcript shows it; seeds are too few."""
    make = Leadership.__init__

    def careless(self: Leadership, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.epoch_start_offset = -1

    patch(Leadership, "__init__", careless)


def counts_its_own_unsynced_records(patch: Patch) -> None:
    """KIP-595: the leader counts what is not on its own disk."""
    advance = Leadership.advance

    def early(self: Leadership, voters: VoterSet, *, durable_offset: int) -> bool:
        return advance(self, voters, durable_offset=1 << 40 if len(voters) > 1 else durable_offset)

    patch(Leadership, "advance", early)


class _EverythingDurable:
    """A log that says that all of it is on the disk."""

    def __init__(self, log: ReplicaLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, "end_offset" if name == "durable_offset" else name)


def acks_before_the_sync(patch: Patch) -> None:
    """KIP-595: a follower fetches on before its records are durable."""
    make, sync = Replica.__init__, ReplicaHost._sync

    def trusting(self: Replica, key: ReplicaKey, log: Any, *args: Any) -> None:
        make(self, key, _EverythingDurable(log), *args)

    def early(self: ReplicaHost) -> None:
        sync(self)
        self.give(lambda node, now_ms: node.on_durable(now_ms))

    patch(Replica, "__init__", trusting)
    patch(ReplicaHost, "_sync", early)


def keeps_a_diverging_tail(patch: Patch) -> None:
    """KIP-101: the follower does not compare epochs."""
    patch(
        following,
        "_truncate",
        lambda replica, leader: replica.out.append(Truncate(replica.log.position.end_offset)),
    )


def leader_accepts_every_log(patch: Patch) -> None:
    """KIP-320: the leader does not look at the epoch of a fetch."""
    patch(leading, "_disagreement", lambda replica, request: None)


def believes_a_diverging_response(patch: Patch) -> None:
    """KAFKA-14704: the high watermark counts before the logs agree."""
    on_response = following.on_response

    def credulous(replica: Replica, response: FetchResponse) -> None:
        on_response(replica, response)
        if not isinstance(response.outcome, Records) and response.epoch == replica.epoch:
            end_offset = replica.log.position.end_offset
            replica.raise_high_watermark(min(response.high_watermark, end_offset))

    patch(following, "on_response", credulous)


def a_wiped_voter_votes_again(patch: Patch) -> None:
    """KIP-853: a voter is known by its broker id alone."""
    step = RaftNode.step

    def anonymous(self: RaftNode, message: Any, now_ms: int) -> list[Effect]:
        if isinstance(message, VoteRequest):
            message = replace(message, voter=self.replica.key)
        return step(self, message, now_ms)

    def contains(self: VoterSet, key: ReplicaKey) -> bool:
        return any(voter.key.broker_id == key.broker_id for voter in self.voters)

    def is_majority(self: VoterSet, keys: Iterable[ReplicaKey]) -> bool:
        return sum(key in self for key in set(keys)) >= self.majority

    patch(RaftNode, "step", anonymous)
    patch(VoterSet, "__contains__", contains)
    patch(VoterSet, "is_majority", is_majority)


def changes_voters_twice_at_once(patch: Patch) -> None:
    """Raft dissertation §4.1, and its erratum: changes of voters overlap."""

    def hasty(self: RaftNode) -> Leadership:
        role = self.replica.role
        assert isinstance(role, Leader)
        return role.leadership

    patch(RaftNode, "_changing", hasty)


def a_half_is_a_majority(patch: Patch) -> None:
    """Half of the voters decide."""
    patch(VoterSet, "majority", property(lambda self: max(1, len(self.voters) // 2)))


def restarts_as_leader_of_its_epoch(patch: Patch) -> None:
    """KIP-595: a leader that restarts leads the same epoch again, without its unsynced records."""
    start = RaftNode.start

    def bold(self: RaftNode, now_ms: int) -> list[Effect]:
        replica = self.replica
        out = start(self, now_ms)
        if isinstance(replica.role, Resigned):
            end_offset = replica.log.position.end_offset
            replica.role = Leader(Leadership(replica.key, end_offset - 1, 0, now_ms))
        return out

    patch(RaftNode, "start", bold)


def leads_on_without_a_majority(patch: Patch) -> None:
    """KAFKA-15489: a leader that is cut off does not resign."""
    patch(Leadership, "quorum_deadline_ms", lambda self, voters, timeout_ms: None)


def an_observer_asks_its_leader_alone(patch: Patch) -> None:
    """KIP-595: without a leader that responds, an observer asks the voters."""
    patch(following, "find_next_leader", lambda replica, role: following.send_fetch(replica))


MUTANTS: tuple[Callable[[Patch], None], ...] = (
    forgets_its_vote,
    votes_twice,
    votes_for_a_shorter_log,
    counts_its_own_unsynced_records,
    acks_before_the_sync,
    keeps_a_diverging_tail,
    leader_accepts_every_log,
    believes_a_diverging_response,
    a_wiped_voter_votes_again,
    changes_voters_twice_at_once,
    a_half_is_a_majority,
    restarts_as_leader_of_its_epoch,
    leads_on_without_a_majority,
    an_observer_asks_its_leader_alone,
)


def first_seed_that_finds(mutant: Callable[[Patch], None], seeds: Iterable[int]) -> int | None:
    """The first of the seeds whose life breaks an invariant or a check of the core or the log."""
    with ExitStack() as stack:

        def patch(target: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(target, name, value))

        mutant(patch)
        for seed in seeds:
            try:
                run_seed(seed)
            except (Violation, CommittedRecordsLost, IllegalTransition, ValueError):
                return seed
    return None
