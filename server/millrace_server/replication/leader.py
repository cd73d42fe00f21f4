"""The leader of a partition in one leader epoch: its followers, the ISR, the high watermark.

Refuses to know records, connections and the controller's rules. Events come in, effects go out:

    on_fetch(follower, position)         a follower says how far it is, and gets an outcome
    on_appended() on_acked()             the log has grown; more of it is as durable as it must be
    on_image(state)                      the partition has changed in the image
    on_brokers_changed()                 so have brokers: one may have become fit for the ISR
    on_accepted() on_refused() on_undecided()    how a proposal ended
    on_deadline()                        the time of `deadline_ms()` has come

Invariants: the high watermark never goes back, and no advance passes what a member of the maximal
ISR has. It stands still while the ISR is smaller than `min.insync.replicas` (KIP-966), so a replica
that has left such an ISR has everything that is committed.

A produce with acks=all is acked by the high watermark, one with acks=1 by `log.acked_offset`.

A broker leads an epoch at most once, so a restarted one waits for a new epoch: what was not durable
is gone, and the same epoch would have two contents.

Sources: KIP-497 (ISR through the controller), KIP-841 and KIP-903 (brokers that may not join),
KIP-966 (eligible leader replicas), KIP-320 (epochs in fetches), KIP-207 (latest offsets).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from millrace_protocol.errors import ErrorCode
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.divergence import disagreement
from millrace_server.replication.effects import (
    AdvanceHighWatermark,
    AdvanceLowWatermark,
    LeaderEffect,
    ProposeIsr,
)
from millrace_server.replication.errors import NotEnoughReplicas
from millrace_server.replication.isr import InSyncReplicas, PartitionState
from millrace_server.replication.log_view import LogView
from millrace_server.replication.messages import (
    UNKNOWN_OFFSET,
    BrokerKey,
    FetchOutcome,
    FetchPosition,
    Records,
    Refused,
)
from millrace_server.replication.progress import NEVER_MS, Progress

Effects = list[LeaderEffect]


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A registered broker: one that is fenced or shuts down may not join an ISR (KIP-841)."""

    epoch: int
    may_join_isr: bool


class BrokerStates(Protocol):
    """The registered brokers, as this broker's image has them at the moment."""

    def get(self, broker_id: int, /) -> BrokerState | None:
        """The broker, None if it is not registered."""


class PartitionLeader:
    """Begins when the epoch is durable in the log's table; ends with the epoch."""

    def __init__(
        self,
        broker_id: int,
        log: LogView,
        state: PartitionState,
        brokers: BrokerStates,
        config: ReplicationConfig,
        *,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        """Raises `ValueError` unless the log has begun the epoch, durably (KAFKA-7415)."""
        if log.durable_epoch != state.leader_epoch or log.epochs.latest != state.leader_epoch:
            raise ValueError(
                f"epoch {state.leader_epoch} is not durable: the table ends with epoch "
                f"{log.epochs.latest}, on the disk with {log.durable_epoch}"
            )
        self.broker_id = broker_id
        self.log = log
        self.state = state
        self.high_watermark = high_watermark
        self.epoch_start_offset = log.epochs.entries[-1].start_offset
        self.isr = InSyncReplicas(state.isr, state.partition_epoch)
        self._brokers = brokers
        self._config = config
        self._appended_to = log.end_offset
        self._retry_ms = now_ms
        self._now_ms = now_ms
        self._low_wanted: int | None = None
        self._progress: dict[int, Progress] = {}
        self._follow_replicas(now_ms)

    @property
    def is_high_watermark_known(self) -> bool:
        """Whether an older leader cannot have told consumers a higher high watermark. Until then
        the latest offset must not be given, and a fetch behind it is no error (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def low_watermark(self) -> int:
        """No replica in sync brings back a record before it; `UNKNOWN_OFFSET` while one has not
        fetched."""
        starts = (
            progress.log_start_offset
            for broker_id, progress in self._progress.items()
            if broker_id in self.isr.maximal
        )
        return min((self.log.durable_start_offset, *starts))

    def await_low_watermark(self, offset: int, now_ms: int) -> Effects:
        """A deletion of records before `offset` waits for all replicas in sync. The lowest offset
        that waits is told with an effect, once; then the next one is to be asked for."""
        wanted = self._low_wanted
        self._low_wanted = offset if wanted is None else min(offset, wanted)
        return self._go_on(now_ms)

    def is_in_sync(self, broker_id: int) -> bool:
        """Whether a broker is, or may be by now, in the ISR."""
        return broker_id in self.isr.maximal

    def check_append(self) -> None:
        """Asked before an append with acks=all. Raises `NotEnoughReplicas`."""
        if len(self.isr.committed) < self.state.isr_needed:
            isr = sorted(self.isr.committed)
            raise NotEnoughReplicas(
                f"{len(isr)} of {self.state.isr_needed} replicas that are needed are in sync: "
                f"{isr}; nothing was appended. Start the other replicas, or send again"
            )

    # Fetches of followers

    def outcome(
        self, follower: BrokerKey, position: FetchPosition, *, session: int
    ) -> FetchOutcome:
        """What the leader answers to a position now; `Records` may be none. Changes nothing.

        `session` is the number of the connection, higher than that of every earlier one.
        """
        epoch = self.state.leader_epoch
        if position.leader_epoch != epoch:
            is_old = position.leader_epoch < epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            return Refused(code)
        progress = self._progress.get(follower.broker_id)
        if progress is None or self._is_old(follower, session, progress):
            return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return disagreement(self.log, position) or Records(position.fetch_offset)

    def on_fetch(
        self, follower: BrokerKey, position: FetchPosition, now_ms: int, *, session: int
    ) -> tuple[FetchOutcome, Effects]:
        """A follower names a position. It counts only if both logs agree there."""
        outcome = self.outcome(follower, position, session=session)
        if not isinstance(outcome, Records):
            return outcome, []
        self._progress[follower.broker_id].note_fetch(
            position,
            follower.epoch,
            session,
            leader_end_offset=self.log.end_offset,
            now_ms=now_ms,
        )
        return outcome, self._go_on(now_ms)

    def _is_old(self, follower: BrokerKey, session: int, progress: Progress) -> bool:
        """Whether a newer process of that broker is known, whose disk may hold less (KIP-903), or
        a newer connection: what comes late over an old one says where the follower was."""
        registered = self._brokers.get(follower.broker_id)
        if registered is not None and follower.epoch < registered.epoch:
            return True
        return (follower.epoch, session) < (progress.broker_epoch, progress.session)

    # The log, the image and the controller

    def on_appended(self, now_ms: int) -> Effects:
        """The log has grown."""
        for progress in self._progress.values():
            progress.note_append(end_before=self._appended_to, now_ms=now_ms)
        self._appended_to = self.log.end_offset
        return self._advance(now_ms)

    def on_acked(self, now_ms: int) -> Effects:
        """More of the log is as durable as the topic demands."""
        return self._advance(now_ms)

    def on_image(self, state: PartitionState, now_ms: int) -> Effects:
        """The partition as the image has it; an older one changes nothing.

        Raises `ValueError` for another leader epoch: that takes another leader.
        """
        if state.leader_epoch != self.state.leader_epoch:
            raise ValueError(f"epoch {state.leader_epoch} is not {self.state.leader_epoch}")
        if state.partition_epoch < self.isr.partition_epoch:
            return []
        self.state = state
        self._follow_replicas(now_ms)
        if self.isr.commit(state.isr, state.partition_epoch):
            self._retry_ms = now_ms
        return self._go_on(now_ms)

    def on_brokers_changed(self, now_ms: int) -> Effects:
        """A broker has registered, was fenced or unfenced, or shuts down."""
        return self._go_on(now_ms)

    def on_accepted(
        self, proposal: ProposeIsr, isr: Iterable[int], partition_epoch: int, now_ms: int
    ) -> Effects:
        """The controller has committed an ISR, with this partition epoch."""
        if self.isr.commit(isr, partition_epoch):
            self._retry_ms = now_ms
        else:
            self.isr.end_proposal(proposal, is_decided=True)
        return self._go_on(now_ms)

    def on_refused(self, proposal: ProposeIsr, now_ms: int) -> Effects:
        """The proposal was refused and will never take effect: a member may not join."""
        if self.isr.end_proposal(proposal, is_decided=True):
            self._retry_ms = now_ms + self._config.proposal_retry_ms
        return self._go_on(now_ms)

    def on_undecided(self, proposal: ProposeIsr, now_ms: int) -> Effects:
        """No response, or one that says that the partition or the controller is another by now.

        Until the image or a response brings a newer partition epoch, its members count.
        """
        if self.isr.end_proposal(proposal, is_decided=False):
            self._retry_ms = now_ms + self._config.proposal_retry_ms
        return self._go_on(now_ms)

    def deadline_ms(self) -> int | None:
        """When `on_deadline` is to be called; None for never.

        It moves with every append and fetch, mostly to a later moment: the shell may leave its
        timer, and set it again when `on_deadline` was too early.
        """
        moments = [
            due_ms
            for broker_id, progress in self._progress.items()
            if self._is_awaited(broker_id, progress)
            and (due_ms := progress.caught_up_ms + self._config.replica_lag_ms_max) > self._now_ms
        ]
        if self.isr.proposed is None and self._is_proposal_due():
            moments.append(self._retry_ms)
        return min(moments, default=None)

    def on_deadline(self, now_ms: int) -> Effects:
        """Proposes what is due; an earlier call does nothing."""
        return self._go_on(now_ms)

    # The rules

    def _follow_replicas(self, now_ms: int) -> None:
        """A replica in sync is taken to have everything now. Another one, that may have nothing,
        has lagged: no ack waits for it until it has caught up once."""
        in_sync = {*self.state.isr, *self.isr.maximal}
        self._progress = {
            broker_id: self._progress.get(broker_id)
            or Progress(now_ms if broker_id in in_sync else NEVER_MS)
            for broker_id in self.state.replicas
            if broker_id != self.broker_id
        }

    def _go_on(self, now_ms: int) -> Effects:
        self._now_ms = now_ms
        out = self._advance(now_ms)
        if self.isr.proposed is None and now_ms >= self._retry_ms and self._is_proposal_due():
            proposal = self._proposal()
            self.isr.propose(proposal)
            out.append(proposal)
        if self._low_wanted is not None and self.low_watermark >= self._low_wanted:
            self._low_wanted = None
            out.append(AdvanceLowWatermark(self.low_watermark))
        return out

    def _advance(self, now_ms: int) -> Effects:
        """Moves the high watermark to what all have that it waits for."""
        if len(self.isr.committed) < self.state.isr_needed:
            return []
        reached = self.log.acked_offset
        for broker_id, progress in self._progress.items():
            if progress.end_offset < reached and self._waits_for(broker_id, progress, now_ms):
                reached = progress.end_offset
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [AdvanceHighWatermark(reached)]

    def _waits_for(self, broker_id: int, progress: Progress, now_ms: int) -> bool:
        """The maximal ISR, and a follower that is about to join it: without the wait, one that
        always fetches would always be behind the high watermark and never join."""
        if broker_id in self.isr.maximal:
            return True
        return (
            progress.end_offset != UNKNOWN_OFFSET
            and not self._has_lagged(progress, now_ms)
            and self._may_join(broker_id, progress)
        )

    def _has_lagged(self, progress: Progress, now_ms: int) -> bool:
        """Whether a follower has lacked something for too long."""
        is_late = now_ms - progress.caught_up_ms >= self._config.replica_lag_ms_max
        return is_late and progress.is_behind(self.log.end_offset)

    def _may_join(self, broker_id: int, progress: Progress) -> bool:
        """Whether the broker, as the image has it, is fit for the ISR, and is still the process
        whose fetches the leader has seen."""
        registered = self._brokers.get(broker_id)
        return (
            registered is not None
            and registered.may_join_isr
            and registered.epoch == progress.broker_epoch
        )

    def _has_caught_up(self, broker_id: int, progress: Progress) -> bool:
        """Whether a follower outside the ISR may be proposed."""
        return progress.end_offset >= max(
            self.high_watermark, self.epoch_start_offset
        ) and self._may_join(broker_id, progress)

    def _is_awaited(self, broker_id: int, progress: Progress) -> bool:
        """Whether the ISR or the high watermark waits for a follower that lacks something."""
        is_known = broker_id in self.isr.maximal or progress.end_offset != UNKNOWN_OFFSET
        return is_known and progress.is_behind(self.log.end_offset)

    def _is_proposal_due(self) -> bool:
        """Whether the ISR is not as it should be, or not known for certain."""
        return bool(self.isr.undecided) or self._wished() != self.isr.committed

    def _wished(self) -> set[int]:
        """The ISR as it should be."""
        committed = self.isr.committed
        wished = {self.broker_id}
        for broker_id, progress in self._progress.items():
            if broker_id not in committed:
                if self._has_caught_up(broker_id, progress):
                    wished.add(broker_id)
            elif not self._has_lagged(progress, self._now_ms):
                wished.add(broker_id)
        return wished

    def _proposal(self) -> ProposeIsr:
        """Of the ISR as it should be; to settle what is undecided, perhaps of the one it is."""
        wished = self._wished()
        members = tuple(self._member(b) for b in self.state.replicas if b in wished)
        return ProposeIsr(self.state.leader_epoch, self.isr.partition_epoch, members)

    def _member(self, broker_id: int) -> BrokerKey:
        """A member that joins has the epoch of its fetches; one that stays, that of the image: the
        controller has kept it."""
        if broker_id in self.isr.committed:
            registered = self._brokers.get(broker_id)
            return BrokerKey(broker_id, -1 if registered is None else registered.epoch)
        return BrokerKey(broker_id, self._progress[broker_id].broker_epoch)
