"""Bugs that replication has had, planted; the simulation must find each.

Each function breaks the cores, or the shell or controller around them, through the patch that it is
given. T-numbers: a bug that lost data in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from millrace_protocol.errors import ErrorCode
from millrace_server.log.epochs import NO_EPOCH, EpochEnd
from millrace_server.replication import leader as leader_module
from millrace_server.replication.fetch_session import FetchSession
from millrace_server.replication.follower import IllegalFollowerEvent, PartitionFollower
from millrace_server.replication.isr import InSyncReplicas
from millrace_server.replication.leader import PartitionLeader
from millrace_server.replication.log_view import LogView
from millrace_server.replication.messages import (
    BrokerKey,
    Diverging,
    FetchPosition,
    FetchResult,
    OutOfRange,
    PartitionKey,
)
from millrace_server.replication.progress import Progress
from tests.replication.controller import Controller, Registration
from tests.replication.invariants import Violation
from tests.replication.partition_host import PartitionHost
from tests.replication.replica_log import ReplicaLog, SyncTicket
from tests.replication.scenario import run_seed

Patch = Callable[[Any, str, Any], None]


def truncates_to_its_high_watermark(patch: Patch) -> None:
    """KAFKA-1211, KIP-101: a new follower takes off what it does not know to be committed."""
    follow = PartitionHost._follow

    def hasty(self: PartitionHost, leader_id: int, *, allows_loss: bool) -> None:
        self.log.truncate_to(self.high_watermark)
        follow(self, leader_id, allows_loss=allows_loss)

    patch(PartitionHost, "_follow", hasty)


def knows_only_the_epoch_asked_for(patch: Patch) -> None:
    """KAFKA-6361, KIP-279: the leader answers for an epoch that it has never had."""

    def answer(log: LogView, position: FetchPosition) -> Diverging | OutOfRange | None:
        if position.fetch_offset < log.start_offset:
            return OutOfRange(log.start_offset)
        end_offset = log.end_offset
        for epoch, start_offset in reversed(log.epochs.entries):
            if epoch > position.last_epoch:
                end_offset = start_offset
        is_behind = position.fetch_offset > end_offset
        return Diverging(EpochEnd(position.last_epoch, end_offset)) if is_behind else None

    patch(leader_module, "disagreement", answer)


def trusts_the_same_leader(patch: Patch) -> None:
    """KAFKA-7164: a follower does not compare logs if its leader is the one of before."""
    follow, position = PartitionHost._follow, PartitionFollower.position
    trusting: set[PartitionFollower] = set()
    leaders: dict[ReplicaLog, int] = {}

    def noting(self: PartitionHost, leader_id: int, *, allows_loss: bool) -> None:
        follow(self, leader_id, allows_loss=allows_loss)
        if leaders.get(self.log) == leader_id and self.follower is not None:
            trusting.add(self.follower)
        leaders[self.log] = leader_id

    def trusted(self: PartitionFollower) -> FetchPosition | None:
        found = position(self)
        if found is None or self not in trusting:
            return found
        return found._replace(last_epoch=NO_EPOCH)

    patch(PartitionHost, "_follow", noting)
    patch(PartitionFollower, "position", trusted)


def serves_every_epoch(patch: Patch) -> None:
    """KAFKA-6880, KIP-320: the leader does not look at the leader epoch of a fetch.

    One life in some four hundred shows it, so a transcript does in the suite.
    """
    outcome = PartitionLeader.outcome

    def careless(
        self: PartitionLeader, follower: BrokerKey, position: FetchPosition, *, session: int
    ) -> object:
        position = position._replace(leader_epoch=self.state.leader_epoch)
        return outcome(self, follower, position, session=session)

    patch(PartitionLeader, "outcome", careless)


def takes_an_old_process_for_the_new_one(patch: Patch) -> None:
    """KIP-903: neither leader nor controller looks at broker epochs."""

    def may_join(self: PartitionLeader, broker_id: int, progress: Progress) -> bool:
        registered = self._brokers.get(broker_id)
        return registered is not None and registered.may_join_isr

    patch(PartitionLeader, "_may_join", may_join)
    patch(PartitionLeader, "_is_old", lambda *args: False)
    patch(Controller, "_is_eligible", lambda self, broker_id, epoch: self._is_fit(broker_id))


def counts_what_comes_late(patch: Patch) -> None:
    """A request over an older connection says where the follower was, and the leader believes it.

    An idle follower does not say again where it is, so it is never in sync.
    """
    is_old = PartitionLeader._is_old

    def forgetful(
        self: PartitionLeader, follower: BrokerKey, session: int, progress: Progress
    ) -> bool:
        return is_old(self, follower, max(session, progress.session), progress)

    patch(PartitionLeader, "_is_old", forgetful)


def serves_before_its_epoch_is_durable(patch: Patch) -> None:
    """KAFKA-7415: the start of the epoch is not on the disk when records of it are."""

    def end_sync(self: ReplicaLog, ticket: SyncTicket) -> None:
        if ticket.cuts == self._cuts:
            self.durable_offset = max(self.durable_offset, ticket.end_offset)

    patch(ReplicaLog, "end_sync", end_sync)
    patch(ReplicaLog, "durable_epoch", property(lambda self: self.table.latest))


def believes_a_diverging_response(patch: Patch) -> None:
    """KAFKA-14704: the leader tells its high watermark before the logs agree, and it counts."""
    on_result, result_of = PartitionFollower.on_result, FetchSession._result

    def telling(self: FetchSession, key: PartitionKey, now_ms: int) -> FetchResult | None:
        result = result_of(self, key, now_ms)
        leader = self._find(key)
        if result is None or isinstance(leader, ErrorCode):
            return result
        return replace(result, high_watermark=leader.high_watermark)

    def credulous(self: PartitionFollower, asked: FetchPosition, result: FetchResult) -> object:
        if asked == self.position() and isinstance(result.outcome, Diverging):
            self._leader_high_watermark = result.high_watermark
            return [*self._adopt(), *on_result(self, asked, result)]
        return on_result(self, asked, result)

    patch(FetchSession, "_result", telling)
    patch(PartitionFollower, "on_result", credulous)


def admits_brokers_that_are_fenced(patch: Patch) -> None:
    """KAFKA-13916, KIP-841: a broker that is fenced or stops comes back into the ISR."""

    def may_join(self: PartitionLeader, broker_id: int, progress: Progress) -> bool:
        registered = self._brokers.get(broker_id)
        return registered is not None and registered.epoch == progress.broker_epoch

    def is_eligible(self: Controller, broker_id: int, epoch: int) -> bool:
        return epoch in (-1, self._epoch_of(broker_id))

    patch(PartitionLeader, "_may_join", may_join)
    patch(Controller, "_is_eligible", is_eligible)


def retention_passes_the_high_watermark(patch: Patch) -> None:
    """KAFKA-5634: records are deleted that are not committed."""
    patch(PartitionHost, "_retention_limit", lambda self: self.log.end_offset)


def commits_with_too_few_replicas(patch: Patch) -> None:
    """KIP-966: the high watermark moves while the ISR is below `min.insync.replicas`."""
    advance = PartitionLeader._advance

    def eager(self: PartitionLeader, now_ms: int) -> object:
        state, self.state = self.state, replace(self.state, min_isr=0)
        try:
            return advance(self, now_ms)
        finally:
            self.state = state

    patch(PartitionLeader, "_advance", eager)


def waits_for_the_committed_isr_alone(patch: Patch) -> None:
    """KIP-497: a replica joins that lacks what was committed while it was proposed."""
    make = PartitionLeader._waits_for

    def narrow(self: PartitionLeader, broker_id: int, progress: Progress, now_ms: int) -> bool:
        return make(self, broker_id, progress, now_ms) and broker_id in self.isr.committed

    patch(PartitionLeader, "_waits_for", narrow)


def forgets_undecided_proposals(patch: Patch) -> None:
    """KIP-497: a proposal without a response counts as refused."""
    end_proposal = InSyncReplicas.end_proposal

    def certain(self: InSyncReplicas, proposal: Any, *, is_decided: bool) -> bool:
        return end_proposal(self, proposal, is_decided=True)

    def narrow(self: PartitionLeader, broker_id: int, progress: Progress, now_ms: int) -> bool:
        return broker_id in self.isr.maximal

    patch(InSyncReplicas, "end_proposal", certain)
    # The wait for followers that are about to join hides the bug from most lives.
    patch(PartitionLeader, "_waits_for", narrow)


class _EverythingAcked:
    """A log that says that all of it is as durable as the topic demands."""

    def __init__(self, log: LogView) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, "end_offset" if name == "acked_offset" else name)


def counts_its_own_unsynced_records(patch: Patch) -> None:
    """The leader commits what is not on its own disk."""
    make = PartitionLeader.__init__

    def trusting(
        self: PartitionLeader, broker_id: int, log: LogView, *args: Any, **kw: Any
    ) -> None:
        make(self, broker_id, _EverythingAcked(log), *args, **kw)

    patch(PartitionLeader, "__init__", trusting)


def acks_before_the_sync(patch: Patch) -> None:
    """A follower fetches on before its records are durable."""
    make = PartitionFollower.__init__

    def trusting(self: PartitionFollower, log: LogView, **kw: Any) -> None:
        make(self, _EverythingAcked(log), **kw)

    def append(self: PartitionHost, records: Any) -> None:
        appended(self, records)
        self._on_acked()

    appended = PartitionHost._append
    patch(PartitionFollower, "__init__", trusting)
    patch(PartitionHost, "_append", append)


def admits_followers_that_are_behind(patch: Patch) -> None:
    """A follower joins without all that is committed."""
    patch(
        PartitionLeader,
        "_has_caught_up",
        lambda self, broker_id, progress: self._may_join(broker_id, progress),
    )


def admits_followers_of_older_epochs(patch: Patch) -> None:
    """KAFKA-7128: a follower joins that has not reached the start of the leader's epoch."""
    make = PartitionLeader.__init__

    def careless(self: PartitionLeader, *args: Any, **kw: Any) -> None:
        make(self, *args, **kw)
        self.epoch_start_offset = 0

    patch(PartitionLeader, "__init__", careless)


def counts_a_log_that_differs(patch: Patch) -> None:
    """A position counts before the leader has compared the logs."""
    on_fetch = PartitionLeader.on_fetch

    def early(
        self: PartitionLeader, follower: BrokerKey, position: FetchPosition, now: int, **kw: Any
    ) -> object:
        progress = self._progress.get(follower.broker_id)
        if progress is not None and position.leader_epoch == self.state.leader_epoch:
            end_offset = self.log.end_offset
            progress.note_fetch(
                position, follower.epoch, kw["session"], leader_end_offset=end_offset, now_ms=now
            )
        return on_fetch(self, follower, position, now, **kw)

    patch(PartitionLeader, "on_fetch", early)


def leads_an_epoch_twice(patch: Patch) -> None:
    """A leader that restarts leads the same epoch, without its unsynced records."""

    def register(self: Controller, broker_id: int, directory: int, *, is_clean: bool) -> int:
        epoch = self.image.version + 1
        self._change(broker=(broker_id, Registration(epoch, directory, is_fenced=False)))
        return epoch

    patch(Controller, "register", register)


MUTANTS: tuple[Callable[[Patch], None], ...] = (
    truncates_to_its_high_watermark,
    knows_only_the_epoch_asked_for,
    trusts_the_same_leader,
    takes_an_old_process_for_the_new_one,
    counts_what_comes_late,
    serves_before_its_epoch_is_durable,
    believes_a_diverging_response,
    admits_brokers_that_are_fenced,
    retention_passes_the_high_watermark,
    commits_with_too_few_replicas,
    waits_for_the_committed_isr_alone,
    forgets_undecided_proposals,
    counts_its_own_unsynced_records,
    acks_before_the_sync,
    admits_followers_that_are_behind,
    admits_followers_of_older_epochs,
    counts_a_log_that_differs,
    leads_an_epoch_twice,
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
            except (Violation, IllegalFollowerEvent, ValueError):
                return seed
    return None
