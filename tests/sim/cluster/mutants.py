"""`python -m tests.sim.cluster.mutants`: bugs that clusters have had, planted; each must be found.

Owns the bugs: each is a function that breaks the brokers through the patch it is given. What is not
found says that the simulation looks away. How they are hunted is `tests.sim.hunt`'s. With `--rare`
those are hunted that few seeds show.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_server.log import PartitionLog
from millrace_server.log.epochs import NO_EPOCH, EpochEnd, EpochTable
from millrace_server.log.producers import Producers
from millrace_server.metadata import broker_registrations, isr_changes
from millrace_server.partitions import opening
from millrace_server.partitions.following import truncate_to
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.role import Leadership, Role
from millrace_server.quorum.replica import QuorumReplica
from millrace_server.raft.effects import Persist
from millrace_server.raft.leadership import Leadership as RaftLeadership
from millrace_server.replicas import replica_manager
from millrace_server.replicas.log_view import PartitionLogView
from millrace_server.replicas.replica_manager import (
    PartitionHooks,
    RegisteredBrokers,
    ReplicaManager,
)
from millrace_server.replication import leader as leader_module
from millrace_server.replication.effects import AdvanceHighWatermark
from millrace_server.replication.fetch_session import FetchSession
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.leader import BrokerState, PartitionLeader
from millrace_server.replication.log_view import LogView
from millrace_server.replication.messages import (
    BrokerKey,
    Diverging,
    FetchPosition,
    FetchResult,
    OutOfRange,
    PartitionKey,
)
from tests.sim.cluster.scenario import run_seed
from tests.sim.hunt import Patch, hunt_all


def truncates_to_its_high_watermark(patch: Patch) -> None:
    """T1, KAFKA-1211, KIP-101: a follower takes off what it does not know to be committed."""
    original = opening.take_role

    async def take_role(partition: Partition, known: Any, broker_id: int) -> None:
        await original(partition, known, broker_id)
        is_behind = partition.log.start_offset < partition.high_watermark < partition.end_offset
        if partition.leadership.role is Role.FOLLOWER and is_behind:
            await truncate_to(partition, partition.high_watermark, now_ms=0)

    patch(replica_manager, "take_role", take_role)


def knows_only_the_epoch_asked_for(patch: Patch) -> None:
    """T2, KAFKA-6361, KIP-279: the leader answers for an epoch that it has never had."""

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


def compares_no_logs(patch: Patch) -> None:
    """T3, KAFKA-7164: a follower goes on where its log ends, whatever its leader has there."""
    original = PartitionFollower.position

    def position(self: PartitionFollower) -> FetchPosition | None:
        found = original(self)
        return found if found is None else found._replace(last_epoch=NO_EPOCH)

    patch(PartitionFollower, "position", position)


def serves_every_epoch(patch: Patch) -> None:
    """T4, KAFKA-6880, KIP-320: leader and follower do not look at the epoch of a fetch."""
    original = PartitionLeader.outcome

    def outcome(
        self: PartitionLeader, follower: BrokerKey, position: FetchPosition, *, session: int
    ) -> Any:
        position = position._replace(leader_epoch=self.state.leader_epoch)
        return original(self, follower, position, session=session)

    patch(PartitionLeader, "outcome", outcome)


def leads_before_its_epoch_is_durable(patch: Patch) -> None:
    """T5, T9, KAFKA-7415: the epoch and where it begins are never written down."""

    async def become_leader(self: Partition, epoch: int) -> None:
        self.leadership.check_next(epoch)
        self.log.begin_epoch(epoch)
        self.leadership = Leadership(Role.LEADER, epoch)

    patch(Partition, "become_leader", become_leader)
    patch(PartitionLogView, "durable_epoch", property(lambda self: self.epochs.latest))
    patch(PartitionLog, "durable_epoch", property(lambda self: self.epochs.latest))


def believes_a_diverging_response(patch: Patch) -> None:
    """T6, KAFKA-14704: the leader tells its high watermark before the logs agree; it counts."""
    on_result, result_of = PartitionFollower.on_result, FetchSession._result

    def telling(self: FetchSession, key: PartitionKey, now_ms: int) -> FetchResult | None:
        result = result_of(self, key, now_ms)
        leader = self._find(key)
        if result is None or isinstance(leader, ErrorCode):
            return result
        return replace(result, high_watermark=leader.high_watermark)

    def credulous(self: PartitionFollower, asked: FetchPosition, result: FetchResult) -> Any:
        if asked == self.position() and isinstance(result.outcome, Diverging):
            self._leader_high_watermark = result.high_watermark
            return [*self._adopt(), *on_result(self, asked, result)]
        return on_result(self, asked, result)

    patch(FetchSession, "_result", telling)
    patch(PartitionFollower, "on_result", credulous)


def admits_brokers_that_are_fenced(patch: Patch) -> None:
    """T11, KAFKA-13916, KIP-841: a fenced or stopping broker comes back into the ISR."""

    def get(self: RegisteredBrokers, broker_id: int) -> BrokerState | None:
        broker = self._cache.image.brokers.get(broker_id)
        return None if broker is None else BrokerState(broker.epoch, may_join_isr=True)

    patch(RegisteredBrokers, "get", get)
    patch(isr_changes, "_check_members", lambda *args: None)


def removes_what_is_not_committed(patch: Patch) -> None:
    """T15, KAFKA-5634: retention passes the high watermark."""
    original = PartitionLog.retention

    def retention(self: PartitionLog, now_ms: int, *, high_watermark: int) -> Any:
        return original(self, now_ms, high_watermark=self.end_offset)

    patch(PartitionLog, "retention", retention)


def followers_forget_producers(patch: Patch) -> None:
    """T21: what the leader of before has appended is appended once more by the next one."""
    original = PartitionLog.append_as_follower

    def append_as_follower(self: PartitionLog, batches: Any, *, now_ms: int) -> int:
        end_offset = original(self, batches, now_ms=now_ms)
        self._state.producers = Producers()
        return end_offset

    patch(PartitionLog, "append_as_follower", append_as_follower)


def votes_are_not_durable(patch: Patch) -> None:
    """T28: a voter that was restarted votes twice in an epoch."""
    original = QuorumReplica._try

    async def try_(self: QuorumReplica, effect: Any) -> None:
        if not isinstance(effect, Persist):
            await original(self, effect)

    patch(QuorumReplica, "_try", try_)


def acks_before_followers_have_it(patch: Patch) -> None:
    """acks=all is answered as acks=1 is."""

    def advance(self: PartitionLeader, now_ms: int) -> list[AdvanceHighWatermark]:
        reached = self.log.acked_offset
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [AdvanceHighWatermark(reached)]

    patch(PartitionLeader, "_advance", advance)


def followers_ack_before_the_sync(patch: Patch) -> None:
    """A follower fetches on before its records are durable."""
    patch(PartitionLogView, "acked_offset", property(lambda self: self.end_offset))


def admits_followers_that_are_behind(patch: Patch) -> None:
    """A follower joins the ISR without all that is committed."""
    patch(
        PartitionLeader,
        "_has_caught_up",
        lambda self, broker_id, progress: self._may_join(broker_id, progress),
    )


def commits_metadata_without_a_majority(patch: Patch) -> None:
    """The leader of the quorum commits what it has itself."""

    def advance(self: RaftLeadership, voters: Any, *, durable_offset: int) -> bool:
        if durable_offset <= self.high_watermark:
            return False
        self.high_watermark = durable_offset
        return True

    patch(RaftLeadership, "advance", advance)


def tells_the_end_before_it_is_known(patch: Patch) -> None:
    """KIP-207: a new leader tells the end of what it knows to be committed."""
    patch(PartitionHooks, "check_end_known", lambda self: None)


def shows_consumers_what_is_not_committed(patch: Patch) -> None:
    """Consumers read what only the leader has."""

    def read(self: Partition, offset: int, *, max_bytes: int) -> Any:
        end_offset = self.log.end_offset
        return self.log.reader.read(offset, max_bytes=max_bytes, end_offset=end_offset)

    patch(Partition, "read", read)


def takes_two_roles_at_a_time(patch: Patch) -> None:
    """Changes of one partition's role overlap."""
    patch(ReplicaManager, "_role_change", lambda self, key: asyncio.Lock())


def leads_an_epoch_twice(patch: Patch) -> None:
    """KIP-966: the registration of a broker that was restarted changes no leader."""
    patch(broker_registrations, "on_broker_registered", lambda *args, **options: [])


def keeps_epochs_of_a_tail_that_is_gone(patch: Patch) -> None:
    """KIP-101: the table of epochs keeps entries of a tail that is gone."""
    patch(EpochTable, "truncate_to", lambda self, end_offset: self)


MUTANTS: tuple[Callable[[Patch], None], ...] = (
    truncates_to_its_high_watermark,
    knows_only_the_epoch_asked_for,
    compares_no_logs,
    admits_brokers_that_are_fenced,
    removes_what_is_not_committed,
    acks_before_followers_have_it,
    commits_metadata_without_a_majority,
    shows_consumers_what_is_not_committed,
    leads_an_epoch_twice,
    keeps_epochs_of_a_tail_that_is_gone,
)
RARE: tuple[Callable[[Patch], None], ...] = (
    serves_every_epoch,
    leads_before_its_epoch_is_durable,
    believes_a_diverging_response,
    followers_forget_producers,
    votes_are_not_durable,
    followers_ack_before_the_sync,
    admits_followers_that_are_behind,
    tells_the_end_before_it_is_known,
    takes_two_roles_at_a_time,
)
"""Bugs that the first seeds, ten of them or more, do not show. Hunted with `--rare` alone."""
_LEADERS_FALL = ("kill", "power", "isolate", "power_majority")
TROUBLES_OF: dict[Callable[[Patch], None], tuple[str, ...]] = {
    removes_what_is_not_committed: ("isolate", "kill"),
    followers_forget_producers: ("kill", "isolate", "cut"),
    votes_are_not_durable: ("kill", "isolate", "power_majority"),
    followers_ack_before_the_sync: ("power_all", "power_majority"),
    admits_brokers_that_are_fenced: ("isolate", "pause", "restart"),
    **dict.fromkeys(
        (
            truncates_to_its_high_watermark,
            knows_only_the_epoch_asked_for,
            compares_no_logs,
            serves_every_epoch,
            leads_before_its_epoch_is_durable,
            believes_a_diverging_response,
            acks_before_followers_have_it,
            admits_followers_that_are_behind,
            commits_metadata_without_a_majority,
            tells_the_end_before_it_is_known,
            shows_consumers_what_is_not_committed,
            leads_an_epoch_twice,
            keeps_epochs_of_a_tail_that_is_gone,
        ),
        _LEADERS_FALL,
    ),
}
"""The only troubles in the hunt for a mutant: those that shall find it."""
OPTIONS_OF: dict[Callable[[Patch], None], dict[str, object]] = {
    # Clients that do more show what is rare in fewer seeds.
    **{mutant: {"rest": 2} for mutant in RARE},
    # A leader must take more records than it keeps until its clients know of the next one.
    removes_what_is_not_committed: {"retentions": ("bytes",), "rest": 2},
}
"""The options in the hunt for a mutant that few seeds have of themselves."""


def main() -> int:
    is_rare = "--rare" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--rare"]
    mutants = RARE if is_rare else MUTANTS
    conditions_of = {
        mutant: {**OPTIONS_OF.get(mutant, {}), "troubles": troubles}
        for mutant, troubles in TROUBLES_OF.items()
    }
    return hunt_all(mutants, run_seed, conditions_of, (__doc__ or "").partition("\n")[0])


if __name__ == "__main__":
    from tests.sim.cluster import mutants

    # In a module of its own: processes that are spawned cannot import a `__main__`.
    sys.exit(mutants.main())
