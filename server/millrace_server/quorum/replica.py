"""The shell around a `RaftNode`: passes it events, and carries out its effects on log and network.

One task takes one event after another. It carries out all effects of an event, in their order and
each to its end, before it takes the next event. So a message leaves only when the state that it
speaks of is durable, and the log is always what the effects so far have made of it.

A full disk delays an effect: the replica tries again until there is room, and `refusal` says why it
waits. Any other error of the disk ends the broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import NO_LEADER, LeaderChangeRecord, MetadataRecord
from millrace_server.environment.seams import Environment
from millrace_server.log import DISK_FULL_ERRNOS, OffsetOutOfRange
from millrace_server.log.checkpoint_file import replace_file
from millrace_server.logs import get_logger
from millrace_server.loop.alarm import Alarm
from millrace_server.quorum.metadata_log import MetadataLog, NotWritten
from millrace_server.quorum.voter_records import voters_record
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
from millrace_server.raft.election_state import ELECTION_STATE_NAME
from millrace_server.raft.messages import (
    FetchOutcome,
    FetchResponse,
    Message,
    Records,
    SnapshotId,
    SnapshotNeeded,
)
from millrace_server.raft.node import Effects, RaftNode, VoterChangeRefused
from millrace_server.raft.voters import ReplicaKey, VoterSet

log = get_logger("millrace.quorum")
Event = Callable[[RaftNode, int], Effects]
FETCH_BYTES_MAX = 1 << 20
"""A response to a follower holds so much of the log, or one batch that is larger."""
DISK_RETRY_MS = 1_000
"""Between two attempts at what a full disk refuses."""
_DEADLINE = "deadline"


def _nothing() -> None:
    """Stands for a callback that is not given."""


class Transport(Protocol):
    """How a replica reaches the others."""

    def send(self, message: Message) -> None:
        """Sends a message, or loses it. Does not wait."""

    async def fetch_snapshot(self, leader_id: int, snapshot: SnapshotId) -> bool:
        """Stores a snapshot of the leader; whether that succeeded. Raises `OSError`."""

    async def install_snapshot(self, snapshot: SnapshotId) -> VoterSet:
        """Begins log and image behind a snapshot that is stored; returns its voters."""


class Listener(Protocol):
    """What the rest of the broker is told, in the order in which it happens. Does not wait."""

    def on_committed(self, offset: int) -> None:
        """Every record before `offset` is committed."""

    def on_leader_changed(self) -> None:
        """`QuorumReplica.leader_id` or `leading_epoch` is another one."""


def _resign(node: RaftNode, now_ms: int) -> list[Effect]:
    return node.resign(now_ms) if len(node.replica.voters) > 1 else []


class QuorumReplica:
    """One replica, from `start` to `stop`. `leading_epoch` is None while it does not lead."""

    def __init__(
        self,
        node: RaftNode,
        metadata_log: MetadataLog,
        env: Environment,
        transport: Transport,
        listener: Listener,
        *,
        are_voters_recorded: bool,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`are_voters_recorded`: whether log or snapshot holds the voters; else the first leader
        appends their record."""
        self._node = node
        self._log = metadata_log
        self._env = env
        self._transport = transport
        self._listener = listener
        self._are_voters_recorded = are_voters_recorded
        self._on_failure = on_failure
        self._events: deque[tuple[Event, Callable[[], None]]] = deque()
        self._wake = asyncio.Event()
        self._alarm: Alarm[str] = Alarm(
            env.clock, asyncio.get_running_loop(), lambda _: self._give_deadline()
        )
        self._task: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._known_leader: tuple[int, int | None] = (-1, None)
        self.leading_epoch: int | None = None
        self.refusal: OSError | None = None
        """Why the replica waits for room on the disk, None if it does not."""

    @property
    def key(self) -> ReplicaKey:
        """The identity of this replica."""
        return self._node.replica.key

    @property
    def epoch(self) -> int:
        """The epoch of this replica."""
        return self._node.replica.epoch

    @property
    def leader_id(self) -> int | None:
        """The broker that leads, as far as this one knows."""
        return self._node.replica.leader_id

    @property
    def voters(self) -> VoterSet:
        """The voters in force."""
        return self._node.replica.voters

    @property
    def node(self) -> RaftNode:
        """The core, to look at: the progress of the followers, for example."""
        return self._node

    def start(self) -> None:
        """Begins to take events."""
        self._give(lambda node, now_ms: node.start(now_ms))
        self._task = self._env.spawn.task(self._run(), name="quorum")

    def resign(self) -> None:
        """Has another voter lead, if there is one."""
        self._give(_resign)

    async def stop(self) -> None:
        """Hands leadership over, and takes no more events."""
        if self._task is None:
            return
        handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._give(_resign, lambda: handed_over.set_result(None))
        if self.refusal is None:
            await asyncio.wait([self._task, handed_over], return_when=asyncio.FIRST_COMPLETED)
        self._alarm.close()
        for task in filter(None, (self._task, self._loading)):
            task.cancel()
            await asyncio.wait([task])

    def receive(
        self,
        message: Message,
        begin: Callable[[], None] = _nothing,
        end: Callable[[], None] = _nothing,
    ) -> None:
        """A message has come in. Calls `begin` before the core takes it, and `end` when all that
        it does is done; the messages that it sends meanwhile are the answer."""

        def step(node: RaftNode, now_ms: int) -> Effects:
            begin()
            return node.step(message, now_ms)

        self._give(step, end)

    def on_process_gone(self, broker_id: int) -> None:
        """No process listens at the address of another replica."""
        self._give(lambda node, now_ms: node.on_process_gone(broker_id, now_ms))

    def on_appended(self) -> None:
        """The controller has appended a change."""
        self._give(lambda node, now_ms: node.on_appended(now_ms))

    async def change_voters(self, change: Event) -> int:
        """Appends the record of another voter set; returns the end of the log behind it.

        `change` is `RaftNode.add_voter` or `remove_voter`. Raises `VoterChangeRefused`, and
        `NotWritten` if the replica ends.
        """
        appended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def step(node: RaftNode, now_ms: int) -> Effects:
            try:
                return change(node, now_ms)
            except VoterChangeRefused as refused:
                if not appended.done():
                    appended.set_exception(refused)
                return []

        def end() -> None:
            if not appended.done():
                appended.set_result(self._log.end_offset)

        self._give(step, end)
        if self._task is not None:
            ends: list[asyncio.Future[Any]] = [self._task, appended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not appended.done():
            raise NotWritten(ErrorCode.BROKER_STOPPING)
        return await appended

    def on_durable(self) -> None:
        """More of the log is on the disk."""
        self._give(lambda node, now_ms: node.on_durable(now_ms))

    def _give_deadline(self) -> None:
        self._give(lambda node, now_ms: node.on_deadline(now_ms))

    def _give(self, event: Event, end: Callable[[], None] = _nothing) -> None:
        self._events.append((event, end))
        self._wake.set()

    async def _run(self) -> None:
        try:
            while True:
                while self._events:
                    event, end = self._events.popleft()
                    for effect in event(self._node, self._env.clock.monotonic_ms()):
                        await self._carry_out(effect)
                    end()
                self._tell_leader()
                due_ms = self._node.deadline_ms()
                if due_ms is not None:
                    self._alarm.set(_DEADLINE, due_ms)
                self._wake.clear()
                await self._wake.wait()
        except Exception as error:
            self._on_failure(error)

    def _tell_leader(self) -> None:
        known = self.epoch, self.leader_id
        if known != self._known_leader:
            self._known_leader = known
            if len(self.voters) > 1:
                log.info("leader of the quorum", epoch=known[0], leader=known[1])
            self._listener.on_leader_changed()

    async def _carry_out(self, effect: Effect) -> None:
        while True:
            try:
                await self._try(effect)
            except OSError as error:
                if error.errno not in DISK_FULL_ERRNOS:
                    raise
                if self.refusal is None:
                    log.error("the quorum waits for room on the disk", reason=str(error))
                self.refusal = error
                self._listener.on_leader_changed()
                await asyncio.sleep(DISK_RETRY_MS / 1000)
            else:
                self.refusal = None
                return

    async def _try(self, effect: Effect) -> None:
        match effect:
            case Persist():
                disk, path = self._env.disk, f"{self._log.directory}/{ELECTION_STATE_NAME}"
                data = effect.state.encode()
                await self._env.spawn.blocking(replace_file, disk, path, data)
            case Send():
                await self._send(effect.message)
            case BeginEpoch():
                await self._begin_epoch(effect.epoch)
            case EndEpoch():
                self.leading_epoch = None
                self._listener.on_leader_changed()
                await self._log.follow(effect.epoch, NO_LEADER)
            case AppendVoters():
                self._append([voters_record(effect.voters)], effect.voters)
            case Append():
                self._append_fetched(effect.records)
            case Truncate():
                await self._log.truncate_to(effect.end_offset)
                self._give(lambda node, now_ms: node.on_truncated(now_ms))
            case FetchSnapshot():
                loading = self._load(effect.leader_id, effect.snapshot)
                self._loading = self._env.spawn.task(loading, name="fetch snapshot")
            case InstallSnapshot():
                await self._install(effect.snapshot)
            case AdvanceHighWatermark():
                self._log.advance_high_watermark(effect.offset)
                self._listener.on_committed(effect.offset)

    async def _send(self, message: Message) -> None:
        if isinstance(message, FetchResponse) and isinstance(message.outcome, Records):
            offset = message.outcome.offset
            outcome: FetchOutcome = Records(offset, b"")
            if offset < self._log.end_offset:
                outcome = await self._env.spawn.blocking(self._read, offset)
            message = replace(message, outcome=outcome)
        self._transport.send(message)

    def _read(self, offset: int) -> FetchOutcome:
        """What a follower gets that fetches from `offset`. Blocking."""
        try:
            return Records(offset, self._log.read_for_follower(offset, max_bytes=FETCH_BYTES_MAX))
        except OffsetOutOfRange:
            # A snapshot has replaced the records since the core has parked the fetch.
            snapshot = self._log.newest_snapshot()
            if snapshot is None:
                raise
            return SnapshotNeeded(snapshot)

    async def _begin_epoch(self, epoch: int) -> None:
        await self._log.begin_epoch(epoch)
        voters = self.voters
        ids = tuple(key.broker_id for key in voters.keys)
        first: list[MetadataRecord] = [LeaderChangeRecord(self.key.broker_id, ids)]
        if self._are_voters_recorded:
            self._append(first, None)
        else:
            self._append([*first, voters_record(voters)], voters)
        self.leading_epoch = epoch
        self._listener.on_leader_changed()

    def _append(self, records: list[MetadataRecord], voters: VoterSet | None) -> None:
        """Appends records of the quorum; `voters` is the set that the last of them holds."""
        try:
            end_offset = self._log.append(records)
        except NotWritten as refused:
            if isinstance(refused.__cause__, OSError):
                raise refused.__cause__ from refused
            raise
        if voters is not None:
            self._note_voters(end_offset - 1, voters)
        self.on_appended()

    def _note_voters(self, offset: int, voters: VoterSet) -> None:
        self._are_voters_recorded = True
        self._node.on_voters(offset, voters)

    def _append_fetched(self, records: Records) -> None:
        data = records.data
        assert isinstance(data, bytes | memoryview)
        if data:
            for offset, voters in self._log.append_fetched(data, offset=records.offset):
                self._note_voters(offset, voters)
        else:
            self.on_durable()

    async def _load(self, leader_id: int, snapshot: SnapshotId) -> None:
        try:
            is_stored = await self._transport.fetch_snapshot(leader_id, snapshot)
        except OSError as error:
            log.warning("snapshot not fetched", end_offset=snapshot.end_offset, reason=str(error))
            is_stored = False
        if is_stored:
            self._give(lambda node, now_ms: node.on_snapshot_fetched(snapshot, now_ms))
        else:
            self._give(lambda node, now_ms: node.on_snapshot_failed(snapshot, now_ms))

    async def _install(self, snapshot: SnapshotId) -> None:
        voters = await self._transport.install_snapshot(snapshot)
        self._are_voters_recorded = True
        self._give(lambda node, now: node.on_snapshot_installed(snapshot, voters, now))
