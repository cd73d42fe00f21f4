"""The follower: copies its leader's log (KIP-595).

Its log is a prefix of the leader's up to `fetch_offset`, or the leader says from where on it is
not. Nothing else that a response says counts before both agree (KAFKA-14704).
"""

from __future__ import annotations

from dataclasses import replace

from millrace_server.log.epochs import EpochEnd
from millrace_server.raft.effects import Append, FetchSnapshot, InstallSnapshot, Truncate
from millrace_server.raft.messages import (
    Diverging,
    FetchRequest,
    FetchResponse,
    NotLeader,
    Records,
    SnapshotId,
    SnapshotNeeded,
)
from millrace_server.raft.replica import Replica
from millrace_server.raft.roles import Follower, IllegalTransition, Unattached


class CommittedRecordsLost(Exception):
    """The leader lacks records that were committed: the quorum was broken from outside."""


def learn_leader(replica: Replica, epoch: int, leader_id: int | None) -> None:
    """Follows the leader of this epoch, if this replica knew none.

    One that knew it and heard nothing goes on asking for votes, whatever others know. Raises
    `IllegalTransition` for a second leader of the epoch.
    """
    known_id = replica.state.leader_id
    if epoch != replica.epoch or leader_id is None:
        return
    if known_id not in (None, leader_id):
        raise IllegalTransition(f"brokers {known_id} and {leader_id} both lead epoch {epoch}")
    if known_id is None and leader_id != replica.key.broker_id:
        follow(replica, leader_id)


def follow(replica: Replica, leader_id: int) -> None:
    """Becomes a follower in this epoch."""
    role = Follower(leader_id, replica.now_ms + replica.config.fetch_timeout_ms)
    replica.take_role(role, state=replace(replica.state, leader_id=leader_id))
    send_fetch(replica)


def find_leader(replica: Replica) -> None:
    """An observer asks any voter which broker leads."""
    role, voter = replica.role, replica.any_voter()
    if isinstance(role, Unattached):
        role.find_leader_ms = replica.now_ms + replica.config.retry_ms
        if voter is not None:
            replica.send(_request(replica, voter.broker_id))


def find_next_leader(replica: Replica, role: Follower) -> None:
    """An observer whose leader is silent asks another voter: there may be a higher epoch.

    It goes on asking its leader too. In this epoch no other voter leads.
    """
    role.deadline_ms = replica.now_ms + replica.config.retry_ms
    voter = replica.any_voter(but=role.leader_id)
    if voter is not None:
        replica.send(_request(replica, voter.broker_id))


def send_fetch(replica: Replica) -> None:
    """Asks the leader for what follows this log, once all of it is on the disk: a fetch acks it."""
    role, config, log = replica.role, replica.config, replica.log
    if isinstance(role, Follower) and log.durable_offset >= log.position.end_offset:
        request = _request(replica, role.leader_id)
        role.fetch_id = request.fetch_id
        # The leader holds a fetch back for a while before it responds.
        role.retry_ms = replica.now_ms + config.fetch_wait_ms + config.retry_ms
        replica.send(request)


def _request(replica: Replica, destination: int) -> FetchRequest:
    position = replica.log.position
    return FetchRequest(
        replica.key,
        destination,
        replica.epoch,
        replica.next_fetch_id(),
        position.end_offset,
        position.epoch,
        replica.high_watermark,
    )


def on_response(replica: Replica, response: FetchResponse) -> None:
    """Takes the response to the fetch that is out; an older one changes nothing."""
    role = replica.role
    if not isinstance(role, Follower):
        learn_leader(replica, response.epoch, response.leader_id)
        return
    is_expected = response.epoch == replica.epoch and response.fetch_id == role.fetch_id
    if not is_expected or response.source.broker_id != role.leader_id:
        return
    role.fetch_id = role.retry_ms = None
    if isinstance(response.outcome, NotLeader):
        # It has resigned, or has lost its epoch; the follower's own deadline decides.
        role.retry_ms = replica.now_ms + replica.config.retry_ms
        return
    role.deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
    role.has_fetched = True
    match response.outcome:
        case Diverging() as outcome:
            _truncate(replica, outcome.end)
        case SnapshotNeeded() as outcome:
            role.snapshot = outcome.snapshot
            replica.out.append(FetchSnapshot(role.leader_id, outcome.snapshot))
        case Records() as outcome:
            role.leader_high_watermark = response.high_watermark
            replica.out.append(Append(outcome))


def on_process_gone(replica: Replica, leader_id: int) -> None:
    """Asks for votes before the fetch timeout if the leader is gone; the voters take turns.

    All of them notice it at about the same moment, and two that ask together split the votes. Those
    that still hear the leader refuse the pre-vote, so a wrong suspicion ends no epoch.
    """
    role = replica.role
    if not isinstance(role, Follower) or role.leader_id != leader_id:
        return
    own_id, config = replica.key.broker_id, replica.config
    order = sorted(key.broker_id for key in replica.voters.keys if key.broker_id != leader_id)
    turn = order.index(own_id) if own_id in order else len(order)
    due_ms = replica.now_ms + config.notice_ms + turn * config.retry_ms
    role.has_fetched = False
    role.deadline_ms = min(role.deadline_ms, due_ms)


def _truncate(replica: Replica, leader: EpochEnd) -> None:
    """Cuts the log to where both may agree, an epoch at a time if need be (KIP-279)."""
    log = replica.log
    own = log.end_offset_for(leader.epoch)
    end_offset = log.start_offset if own is None else min(own.end_offset, leader.end_offset)
    if end_offset < replica.high_watermark:
        raise CommittedRecordsLost(
            f"the leader of epoch {replica.epoch} has the metadata log up to offset {end_offset}, "
            f"and records up to {replica.high_watermark} are committed: stop all brokers, and "
            "restore the data directories of one moment"
        )
    replica.out.append(Truncate(end_offset))


def on_durable(replica: Replica) -> None:
    """All that was appended is on the disk: the next fetch says so to the leader."""
    role = replica.role
    if isinstance(role, Follower):
        replica.raise_high_watermark(min(role.leader_high_watermark, replica.log.durable_offset))
        if role.is_idle:
            send_fetch(replica)


def on_snapshot_fetched(replica: Replica, snapshot: SnapshotId) -> None:
    """The snapshot is whole on the disk; it takes effect if this leader is still followed."""
    role = replica.role
    if isinstance(role, Follower) and role.snapshot == snapshot:
        role.snapshot = None
        replica.out.append(InstallSnapshot(snapshot))


def on_snapshot_failed(replica: Replica, snapshot: SnapshotId) -> None:
    """The leader asks again, perhaps for a newer one."""
    role = replica.role
    if isinstance(role, Follower) and role.snapshot == snapshot:
        role.snapshot = None
        role.retry_ms = replica.now_ms + replica.config.retry_ms
