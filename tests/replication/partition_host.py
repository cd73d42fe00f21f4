"""One replica in a process of the simulation: the shell around a leader or a follower."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.effects import (
    AdvanceHighWatermark,
    AdvanceStart,
    Append,
    FollowerEffect,
    LeaderEffect,
    ProposeIsr,
    ReportLoss,
    Reset,
    Truncate,
)
from millrace_server.replication.errors import NotEnoughReplicas
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.leader import BrokerState, PartitionLeader
from millrace_server.replication.messages import PartitionKey, Records
from tests.replication.controller import Refused
from tests.replication.invariants import Violation
from tests.replication.replica_log import Entry, ReplicaLog

if TYPE_CHECKING:
    from tests.replication.broker_host import BrokerHost

CONFIG = ReplicationConfig(replica_lag_ms_max=4_000)


class PartitionHost:
    """A leader, a follower, or neither: before the first image, and while an epoch begins."""

    def __init__(self, host: BrokerHost, key: PartitionKey, log: ReplicaLog) -> None:
        saved = min(host.saved_high_watermarks[key], log.end_offset)
        self.host = host
        self.key = key
        self.log = log
        self.high_watermark = max(saved, log.start_offset)
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self._leader_epoch = -1
        self._leader_id: int | None = None
        self._unacked: deque[tuple[int, Entry]] = deque()
        self._world = host.world

    @property
    def name(self) -> str:
        return f"broker {self.host.broker_id}, partition {self.key.partition}"

    # The image

    def on_image(self) -> None:
        """Takes the role that the image says, or tells the leader of the change."""
        image, broker_id = self.host.image, self.host.broker_id
        partition = image.partitions[self.key]
        if broker_id not in partition.state.replicas:
            return
        if partition.state.leader_epoch > self._leader_epoch:
            self._leave_role()
            self._leader_epoch = partition.state.leader_epoch
            self._leader_id = partition.leader
            if partition.leader == broker_id:
                self._begin_epoch()
            elif partition.leader is not None:
                self._follow(partition.leader, allows_loss=partition.allows_loss)
        elif self.leader is not None:
            now_ms = self._world.now_ms
            self.carry_out(self.leader.on_image(partition.state, now_ms))
            self.carry_out(self.leader.on_brokers_changed(now_ms))

    def _leave_role(self) -> None:
        if self.leader is not None:
            self.leader = None
            self._unacked.clear()
            self.host.on_leader_changed(self.key)
        if self.follower is not None:
            self.follower = None
            assert self._leader_id is not None
            self.host.schedule(self._leader_id).remove(self.key)

    def _begin_epoch(self) -> None:
        """The epoch is durable before the broker leads in it (KAFKA-7415)."""
        epoch = self._leader_epoch
        self.log.begin_epoch(epoch)
        self._sync(lambda: self._lead() if epoch == self._leader_epoch else None)

    def _lead(self) -> None:
        partition = self.host.image.partitions[self.key]
        if self.leader is not None or partition.leader != self.host.broker_id:
            return
        process = (self.host.broker_id, self.host.broker_epoch)
        self._world.invariants.on_leader(
            self.key, process, self._leader_epoch, self.log, self.high_watermark
        )
        self.leader = PartitionLeader(
            self.host.broker_id,
            self.log,
            partition.state,
            _BrokersOf(self.host),
            CONFIG,
            high_watermark=self.high_watermark,
            now_ms=self._world.now_ms,
        )
        self._world.situations["a leader has begun"] += 1
        self.host.on_leader_changed(self.key)
        self.carry_out(self.leader.on_acked(self._world.now_ms))

    def _follow(self, leader_id: int, *, allows_loss: bool) -> None:
        self.log.end_epoch()
        self.follower = PartitionFollower(
            self.log,
            leader_epoch=self._leader_epoch,
            high_watermark=self.high_watermark,
            allows_loss=allows_loss,
        )
        self.host.schedule(leader_id).add(self.key, self.follower)
        self._sync(self._on_acked)

    # Clients and housekeeping

    def produce(self, value: str, *, acks_all: bool) -> bool:
        """Appends a value if this replica leads and the ISR is large enough."""
        leader = self.leader
        if leader is None:
            return False
        if acks_all:
            try:
                leader.check_append()
            except NotEnoughReplicas:
                self._world.situations["an append was refused: the ISR is too small"] += 1
                return False
        entry = Entry(self._leader_epoch, value)
        if acks_all:
            self._unacked.append((self.log.end_offset, entry))
        self.log.append(entry)
        self.host.on_appended(self.key)
        self.carry_out(leader.on_appended(self._world.now_ms))
        self._sync(self._on_acked)
        return True

    def run_retention(self, count: int) -> None:
        """Takes records off the front, never one that is not committed."""
        offset = min(self.log.start_offset + count, self._retention_limit())
        if self.leader is not None and offset > self.log.start_offset:
            self._advance_start(offset)

    def _retention_limit(self) -> int:
        return self.high_watermark

    def _advance_start(self, offset: int) -> None:
        self.log.advance_start(offset)
        self._world.situations["a log begins later"] += 1
        self._world.invariants.on_log(self.name, self.log, self.high_watermark)
        self.host.on_offsets_moved(self.key)

    # Effects

    def carry_out(self, effects: Sequence[LeaderEffect | FollowerEffect]) -> None:
        for effect in effects:
            match effect:
                case AdvanceHighWatermark():
                    self._advance(effect.offset)
                case ProposeIsr():
                    self._propose(effect)
                case Append():
                    self._append(effect.records)
                case Truncate():
                    self._truncate(effect)
                case Reset():
                    self._reset(effect)
                case AdvanceStart():
                    self._advance_start(effect.offset)
                case ReportLoss():
                    raise Violation(f"{self.name}: {effect.message}")

    def _advance(self, offset: int) -> None:
        before, self.high_watermark = self.high_watermark, offset
        invariants = self._world.invariants
        if self._leader_epoch >= invariants.unclean_epochs.get(self.key, -1):
            invariants.on_high_watermark(
                self.key, self.name, self.log, before, offset, epoch=self._leader_epoch
            )
            if self.leader is not None:
                self._world.check_replicas()
        invariants.on_log(self.name, self.log, offset)
        self.host.on_offsets_moved(self.key)
        self._ack()

    def _ack(self) -> None:
        invariants = self._world.invariants
        is_old = self._leader_epoch < invariants.unclean_epochs.get(self.key, -1)
        while self._unacked and self._unacked[0][0] < self.high_watermark:
            offset, entry = self._unacked.popleft()
            assert self.leader is not None
            if not is_old:
                self._world.check_copies(self.key, offset, entry, self.leader.state.isr_needed)
                invariants.on_ack(self.key, offset, entry)
            self._world.situations["acks=all was answered"] += 1

    def _propose(self, proposal: ProposeIsr) -> None:
        leader = self.leader

        def respond(result: tuple[tuple[int, ...], int] | Refused) -> None:
            if leader is None or leader is not self.leader:
                return
            now_ms = self._world.now_ms
            if not isinstance(result, Refused):
                self.carry_out(leader.on_accepted(proposal, *result, now_ms))
            elif result.is_decided:
                self.carry_out(leader.on_refused(proposal, now_ms))
            else:
                self.carry_out(leader.on_undecided(proposal, now_ms))

        self._world.propose(self.host, self.key, proposal, respond)

    def _append(self, records: Records) -> None:
        if records.offset != self.log.end_offset:
            raise Violation(f"{self.name} appends {records.offset} at {self.log.end_offset}")
        assert isinstance(records.data, tuple)
        for entry in records.data:
            try:
                self.log.append(entry)
            except ValueError as error:
                raise Violation(f"{self.name}: {error}") from error
        self._sync(self._on_acked)

    def _truncate(self, effect: Truncate) -> None:
        if effect.end_offset < self.log.end_offset:
            self._world.situations["a follower has truncated its log"] += 1
        self.log.truncate_to(effect.end_offset)
        self._lower_high_watermark(effect.high_watermark)
        follower = self.follower
        self._when_done(follower, lambda: follower.on_truncated() if follower else None)

    def _reset(self, effect: Reset) -> None:
        self._world.situations["a follower has replaced its log"] += 1
        self.log.reset(effect.start_offset)
        self._lower_high_watermark(effect.high_watermark)
        follower = self.follower
        self._when_done(follower, lambda: follower.on_reset() if follower else None)

    def _lower_high_watermark(self, offset: int) -> None:
        """A restart must not find a higher one."""
        self.high_watermark = offset
        saved = self.host.saved_high_watermarks
        saved[self.key] = min(saved[self.key], offset)

    def _when_done(self, follower: PartitionFollower | None, then: Callable[[], None]) -> None:
        """The disk takes its time; meanwhile another role may have begun."""

        def done() -> None:
            if follower is self.follower:
                then()
                self._name_again()

        self.host.later(self._world.disk_ms(), done)

    def _sync(self, then: Callable[[], None]) -> None:
        ticket = self.log.begin_sync()

        def synced() -> None:
            self.log.end_sync(ticket)
            then()

        self.host.later(self._world.disk_ms(), synced)

    def _on_acked(self) -> None:
        if self.leader is not None:
            self.carry_out(self.leader.on_acked(self._world.now_ms))
        elif self.follower is not None:
            self.carry_out(self.follower.on_acked())
            self._name_again()

    def _name_again(self) -> None:
        if self._leader_id is not None:
            self.host.schedule(self._leader_id).on_changed(self.key)


class _BrokersOf:
    """The brokers in a host's image of the moment."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host

    def get(self, broker_id: int, /) -> BrokerState | None:
        return self._host.image.get(broker_id)
