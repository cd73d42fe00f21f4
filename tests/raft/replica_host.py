"""A replica of the simulated quorum: the shell around one `RaftNode`, its log and its disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from millrace_server.raft.config import RaftConfig
from millrace_server.raft.effects import (
    AdvanceHighWatermark,
    Append,
    AppendVoters,
    BeginEpoch,
    Effect,
    EndEpoch,
    FetchSnapshot,
    InstallSnapshot,
    Persist,
    Send,
    Truncate,
)
from millrace_server.raft.election_state import ElectionState
from millrace_server.raft.messages import FetchResponse, Records, VoteResponse
from millrace_server.raft.node import RaftNode
from millrace_server.raft.roles import Leader
from millrace_server.raft.voters import ReplicaKey, VoterSet
from tests.raft.invariants import Violation
from tests.raft.replica_log import Entry, ReplicaLog, Snapshot

if TYPE_CHECKING:
    from tests.raft.world import World

Event = Callable[[RaftNode, int], list[Effect]]


class ReplicaHost:
    """One process after another on the disk of one broker. An event is done before the next."""

    def __init__(self, world: World, key: ReplicaKey, first_voters: VoterSet) -> None:
        self.world = world
        self.key = key
        self.state = ElectionState()
        self.log = ReplicaLog(first_voters)
        self.node: RaftNode | None = None
        self.is_paused = False
        self._life = 0
        self._log_life = 0
        self._events: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._is_busy = False
        self._snapshot: Snapshot | None = None
        self._high_watermark = 0
        self._alarm_ms: int | None = None

    @property
    def leads(self) -> bool:
        return self.node is not None and isinstance(self.node.replica.role, Leader)

    @property
    def high_watermark(self) -> int:
        return 0 if self.node is None else self.node.replica.high_watermark

    def start(self) -> None:
        """Starts a process on what is on the disk."""
        self._high_watermark = 0
        self.node = RaftNode(
            self.key,
            self.log,
            self.log.history(),
            self.state,
            RaftConfig(),
            self.world.rng.randrange,
        )
        self.give(lambda node, now_ms: node.start(now_ms))

    def crash(self) -> None:
        """Ends the process and cuts the power."""
        self._life += 1
        self.node = None
        self.is_paused = False
        self._events.clear()
        self._effects.clear()
        self._is_busy = False
        self._alarm_ms = None
        self.log.lose_what_is_not_durable(self.world.rng.choice((0, 0, 1, 3)))

    def resume(self) -> None:
        self.is_paused = False
        self._go_on()

    def give(self, event: Event) -> None:
        """Queues an event."""
        if self.node is not None:
            self._events.append(event)
            self._go_on()

    def propose(self, value: str) -> int | None:
        """Appends a value if this replica leads; returns its offset."""
        if self._is_busy or self.is_paused or not self.leads:
            return None
        return self._append(Entry(self._epoch, value))

    @property
    def _epoch(self) -> int:
        assert self.node is not None
        return self.node.replica.epoch

    def _go_on(self) -> None:
        while self.node is not None and not self._is_busy and not self.is_paused:
            if self._effects:
                self._carry_out(self._effects.popleft())
            elif self._events:
                event = self._events.popleft()
                self._effects.extend(event(self.node, self.world.local_ms(self.key)))
                self.world.on_stepped(self)
            else:
                self._set_alarm()
                return

    def _set_alarm(self) -> None:
        assert self.node is not None
        due_ms = self.node.deadline_ms()
        if due_ms is None or due_ms == self._alarm_ms:
            return
        self._alarm_ms = due_ms

        def ring() -> None:
            if self._alarm_ms == due_ms:
                self._alarm_ms = None
                self.give(lambda node, now_ms: node.on_deadline(now_ms))

        self._later(max(1, due_ms - self.world.local_ms(self.key)), ring)

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        life = self._life
        self.world.later(delay_ms, lambda: call() if life == self._life else None)

    def _wait_for_disk(self, then: Callable[[], None]) -> None:
        self._is_busy = True

        def done() -> None:
            self._is_busy = False
            then()
            self._go_on()

        self._later(self.world.disk_ms(), done)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self._wait_for_disk(lambda: setattr(self, "state", effect.state))
            case Send():
                self._send(effect)
            case BeginEpoch():
                self.world.invariants.on_leader(self.key, effect.epoch, self.log)
                self.log.begin_epoch(effect.epoch)
                self._append(Entry(effect.epoch, f"leader {self.key.broker_id}"))
            case AppendVoters():
                self._append(Entry(self._epoch, "voters", effect.voters))
            case Append():
                self._append_fetched(effect.records)
            case Truncate():
                self._wait_for_disk(lambda: self._truncate(effect.end_offset))
            case FetchSnapshot():
                self.world.fetch_snapshot(self, effect.leader_id, effect.snapshot)
            case InstallSnapshot():
                self._wait_for_disk(self._install)
            case AdvanceHighWatermark():
                self._advance(effect.offset)
            case EndEpoch():
                self.world.situations["a leader has ended its epoch"] += 1

    def _send(self, effect: Send) -> None:
        message = effect.message
        if isinstance(message, VoteResponse) and message.is_granted and not message.is_pre_vote:
            candidate = self.state.voted
            assert candidate is not None
            self.world.invariants.on_vote(self.key, message.epoch, candidate)
        if isinstance(message, FetchResponse) and isinstance(message.outcome, Records):
            offset = message.outcome.offset
            data = self.log.read(offset, self.world.rng.choice((1, 2, 5)))
            message = replace(message, outcome=Records(offset, data))
        self.world.send(message)

    def _append(self, entry: Entry) -> int:
        offset = self.log.append(entry)
        if entry.voters is not None:
            assert self.node is not None
            self.node.on_voters(offset, entry.voters)
        self.give(lambda node, now_ms: node.on_appended(now_ms))
        self._sync()
        return offset

    def _append_fetched(self, records: Records) -> None:
        assert isinstance(records.data, list) and self.node is not None
        if records.offset != self.log.end_offset:
            raise Violation(f"{self.key} appends at {records.offset}, not {self.log.end_offset}")
        for entry in records.data:
            offset = self.log.append(entry)
            if entry.voters is not None:
                self.node.on_voters(offset, entry.voters)
        self._sync()

    def _sync(self) -> None:
        end_offset, log_life = self.log.end_offset, self._log_life

        def synced() -> None:
            log = self.log
            if log_life != self._log_life:
                # The sync was of a log that has been cut since.
                return
            log.durable_offset = max(log.durable_offset, min(end_offset, log.end_offset))
            self.give(lambda node, now_ms: node.on_durable(now_ms))

        self._later(self.world.disk_ms(), synced)

    def _truncate(self, end_offset: int) -> None:
        self.world.situations["a follower has truncated its log"] += 1
        self.log.truncate_to(end_offset)
        self._log_life += 1
        self.give(lambda node, now_ms: node.on_truncated(now_ms))

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """A snapshot has come whole."""
        self._snapshot = snapshot
        self.give(lambda node, now: node.on_snapshot_fetched(snapshot.snapshot_id, now))

    def _install(self) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        self.world.situations["a follower has installed a snapshot"] += 1
        self.log.install(snapshot)
        self._log_life += 1
        self.give(
            lambda node, now_ms: node.on_snapshot_installed(
                snapshot.snapshot_id, snapshot.voters, now_ms
            )
        )

    def _advance(self, offset: int) -> None:
        if offset <= self._high_watermark:
            raise Violation(f"the high watermark of {self.key} goes back to {offset}")
        self._high_watermark = offset
        if self.leads:
            self.world.check_commit(self, offset)
        self.world.invariants.on_high_watermark(self.key, self._epoch, self.log, offset)
