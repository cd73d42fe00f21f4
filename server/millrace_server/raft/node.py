"""A replica of the metadata log: takes events, returns effects.

Refuses to know records, files, connections and the time: the shell passes `now_ms`, and carries the
effects of one event out before it passes the next one. So the log is always what the effects so far
have made of it.

    step(message)                        a message came in
    on_deadline()                        the time of `deadline_ms()` has come
    on_process_gone(broker_id)           the address of another replica refuses connections
    on_appended() on_durable()           the log has grown; more of it is on the disk
    on_truncated() on_snapshot_...()     the shell has done what an effect asked for
    on_voters(offset, voters)            the log holds this set of voters

Sources: Raft (Ongaro and Ousterhout, 2014); KIP-595 (followers pull), KIP-630 (snapshots), KIP-853
(voters and their directories), KIP-996 (pre-vote), KIP-1166 (high watermark in a fetch).

Unfinished: the leader keeps the progress of every replica that fetches, so the shell must admit
registered brokers alone. A leader that hands over resigns and lets the voter with the longest log
ask first; it does not wait until that voter has everything.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace_server.raft import following, leading, voting
from millrace_server.raft.config import RaftConfig
from millrace_server.raft.effects import AppendVoters, Effect
from millrace_server.raft.election_state import ElectionState
from millrace_server.raft.leadership import Leadership
from millrace_server.raft.log_view import LogView
from millrace_server.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    Message,
    SnapshotId,
    StaleEpochResponse,
    VoteRequest,
    VoteResponse,
)
from millrace_server.raft.replica import Replica
from millrace_server.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from millrace_server.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet

Effects = list[Effect]


class VoterChangeRefused(Exception):
    """The set of voters cannot be changed now; the text says why."""


class RaftNode:
    """One replica. `start` once, then events in any order; each returns its effects."""

    def __init__(
        self,
        key: ReplicaKey,
        log: LogView,
        history: VoterHistory,
        state: ElectionState,
        config: RaftConfig,
        draw: Callable[[int], int],
    ) -> None:
        """`draw(n)` returns a random number from 0 to n - 1."""
        self.replica = Replica(key, log, history, state, config, draw)

    def start(self, now_ms: int) -> Effects:
        """The first event: takes the role that the state says. A leader begins as resigned."""
        replica = self._at(now_ms)
        leader_id = replica.state.leader_id
        if leader_id is None:
            replica.role = Unattached(now_ms + replica.election_timeout_ms(), now_ms)
        elif leader_id == replica.key.broker_id:
            replica.role = Resigned(now_ms + replica.election_timeout_ms())
        else:
            replica.role = Follower(leader_id, now_ms + replica.config.fetch_timeout_ms)
            following.send_fetch(replica)
        if replica.voters.keys == (replica.key,):
            self._end_wait()
        return self._effects()

    def step(self, message: Message, now_ms: int) -> Effects:
        """Takes a message. Raises `CommittedRecordsLost`."""
        replica = self._at(now_ms)
        if isinstance(message, VoteRequest) and message.voter != replica.key:
            # The sender knows this broker by another directory, whose votes are not known here.
            voting.respond(replica, message, is_granted=False)
            return self._effects()
        if message.epoch > replica.epoch:
            replica.enter_epoch(message.epoch)
        match message:
            case VoteRequest():
                voting.on_request(replica, message)
            case VoteResponse():
                voting.on_response(replica, message)
            case FetchRequest():
                leading.on_request(replica, message)
            case FetchResponse():
                following.on_response(replica, message)
            case BeginEpochRequest():
                self._on_begin_epoch(message)
            case EndEpochRequest():
                self._on_end_epoch(message)
            case StaleEpochResponse():
                following.learn_leader(replica, message.epoch, message.leader_id)
        return self._effects()

    def deadline_ms(self) -> int | None:
        """When `on_deadline` is to be called; None for never."""
        replica = self.replica
        match replica.role:
            case Unattached() as role:
                return role.deadline_ms if replica.may_lead else role.find_leader_ms
            case Follower() as role:
                return _earliest(role.retry_ms, role.deadline_ms)
            case Prospective() | Candidate() as role:
                return min(role.deadline_ms, role.retry_ms)
            case Resigned() as role:
                return role.deadline_ms
            case Leader() as role:
                leadership = role.leadership
                return _earliest(
                    leading.resign_ms(replica, leadership),
                    leadership.announce_ms if replica.voters.others(replica.key) else None,
                    *(parked.deadline_ms for parked in leadership.parked.values()),
                )

    def on_deadline(self, now_ms: int) -> Effects:
        """Does what is due; an earlier call does nothing."""
        replica = self._at(now_ms)
        due_ms = self.deadline_ms()
        if due_ms is None or now_ms < due_ms:
            return self._effects()
        match replica.role:
            case Unattached() if not replica.may_lead:
                following.find_leader(replica)
            case Follower() as role if now_ms < role.deadline_ms:
                following.send_fetch(replica)
            case Follower() as role if not replica.may_lead:
                following.find_next_leader(replica, role)
            case Prospective() | Candidate() as role if now_ms < role.deadline_ms:
                voting.ask(replica, role)
            case Leader() as role:
                leading.on_deadline(replica, role.leadership)
            case _:
                self._end_wait()
        return self._effects()

    def on_process_gone(self, broker_id: int, now_ms: int) -> Effects:
        """The process of another replica has ended, as far as this one can tell."""
        replica = self._at(now_ms)
        following.on_process_gone(replica, broker_id)
        return self._effects()

    def on_appended(self, now_ms: int) -> Effects:
        """The leader's log has grown."""
        replica = self._at(now_ms)
        if isinstance(replica.role, Leader):
            leading.respond_ready(replica, replica.role.leadership)
        return self._effects()

    def on_durable(self, now_ms: int) -> Effects:
        """More of the log is on the disk, or as much as before."""
        replica = self._at(now_ms)
        if isinstance(replica.role, Leader):
            leading.advance(replica, replica.role.leadership)
        else:
            following.on_durable(replica)
        return self._effects()

    def on_truncated(self, now_ms: int) -> Effects:
        """The log ends at the offset of `Truncate`."""
        replica = self._at(now_ms)
        replica.history = replica.history.truncate_to(replica.log.position.end_offset)
        following.send_fetch(replica)
        return self._effects()

    def on_snapshot_fetched(self, snapshot: SnapshotId, now_ms: int) -> Effects:
        """A snapshot is whole on the disk, and not in force."""
        replica = self._at(now_ms)
        following.on_snapshot_fetched(replica, snapshot)
        return self._effects()

    def on_snapshot_failed(self, snapshot: SnapshotId, now_ms: int) -> Effects:
        """A snapshot could not be fetched."""
        replica = self._at(now_ms)
        following.on_snapshot_failed(replica, snapshot)
        return self._effects()

    def on_snapshot_installed(self, snapshot: SnapshotId, voters: VoterSet, now_ms: int) -> Effects:
        """The log begins behind the snapshot, which holds `voters`."""
        replica = self._at(now_ms)
        replica.history = VoterHistory(voters)
        replica.raise_high_watermark(snapshot.end_offset)
        following.send_fetch(replica)
        return self._effects()

    def on_voters(self, offset: int, voters: VoterSet) -> None:
        """The record at `offset`, which was just appended, holds this set of voters."""
        self.replica.history = self.replica.history.add(offset, voters)

    def add_voter(self, voter: Voter, now_ms: int) -> Effects:
        """Adds a replica that follows this leader closely. Raises `VoterChangeRefused`."""
        progress = self._changing().progress.get(voter.key)
        since_ms = now_ms - self.replica.config.fetch_timeout_ms
        if progress is None or progress.caught_up_ms < since_ms:
            raise VoterChangeRefused(
                f"broker {voter.key.broker_id} has not caught up with the metadata log; wait until "
                "it has"
            )
        return self._change_voters(lambda voters: voters.with_voter(voter))

    def remove_voter(self, key: ReplicaKey, now_ms: int) -> Effects:
        """Removes a voter. Raises `VoterChangeRefused`."""
        leadership, replica = self._changing(), self._at(now_ms)
        since_ms = now_ms - replica.config.fetch_timeout_ms
        silent = leadership.silent(replica.voters, since_ms=since_ms)
        active = [voter for voter in replica.voters.keys if voter not in (*silent, key)]
        if len(replica.voters) > 1 and len(active) < (len(replica.voters) - 1) // 2 + 1:
            # The rest could commit neither this change nor anything else.
            raise VoterChangeRefused(
                f"without broker {key.broker_id} too few of the other voters are active; start "
                "them first"
            )
        return self._change_voters(lambda voters: voters.without(key))

    def resign(self, now_ms: int) -> Effects:
        """Hands leadership over, as a broker does that stops; does nothing if it does not lead."""
        replica = self._at(now_ms)
        if isinstance(replica.role, Leader):
            leading.resign(replica, replica.role.leadership)
        return self._effects()

    def _at(self, now_ms: int) -> Replica:
        self.replica.now_ms = now_ms
        return self.replica

    def _effects(self) -> Effects:
        out, self.replica.out = self.replica.out, []
        return out

    def _end_wait(self) -> None:
        """The time of a role without a leader is over, or that of a follower without responses."""
        replica = self.replica
        if isinstance(replica.role, Resigned):
            replica.enter_epoch(replica.epoch + 1)
        if isinstance(replica.role, Prospective):
            voting.give_up(replica)
        elif replica.may_lead:
            voting.begin(replica)

    def _on_begin_epoch(self, message: BeginEpochRequest) -> None:
        replica, leader_id = self.replica, message.source.broker_id
        if message.epoch < replica.epoch:
            replica.send(
                StaleEpochResponse(replica.key, leader_id, replica.epoch, replica.leader_id)
            )
        else:
            following.learn_leader(replica, message.epoch, leader_id)

    def _on_end_epoch(self, message: EndEpochRequest) -> None:
        replica = self.replica
        role, order = replica.role, message.successors
        if message.epoch != replica.epoch or not isinstance(role, Follower):
            return
        if role.leader_id == message.source.broker_id:
            # The voter with the longest log asks first; the others leave it time.
            own_id = replica.key.broker_id
            turn = order.index(own_id) if own_id in order else len(order)
            role.has_fetched = False
            role.deadline_ms = replica.now_ms + turn * replica.config.retry_ms

    def _changing(self) -> Leadership:
        replica = self.replica
        if not isinstance(replica.role, Leader):
            raise VoterChangeRefused("this broker does not lead the quorum; ask the leader")
        leadership = replica.role.leadership
        if not leadership.has_committed:
            raise VoterChangeRefused("the leader has committed nothing in its epoch yet; try again")
        if replica.history.latest_offset >= replica.high_watermark:
            raise VoterChangeRefused("another change of the voters is not committed yet; try again")
        return leadership

    def _change_voters(self, change: Callable[[VoterSet], VoterSet]) -> Effects:
        try:
            return [AppendVoters(change(self.replica.voters))]
        except ValueError as error:
            raise VoterChangeRefused(str(error)) from error


def _earliest(*moments: int | None) -> int | None:
    return min((moment for moment in moments if moment is not None), default=None)
