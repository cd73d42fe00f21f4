"""The leader: answers fetches, commits, changes the voters, and resigns without a quorum."""

from __future__ import annotations

from dataclasses import replace

from millrace_server.log.epochs import NO_EPOCH, EpochEnd
from millrace_server.raft.effects import BeginEpoch
from millrace_server.raft.leadership import Leadership, ParkedFetch
from millrace_server.raft.log_view import LogView
from millrace_server.raft.messages import (
    BeginEpochRequest,
    Diverging,
    EndEpochRequest,
    FetchOutcome,
    FetchRequest,
    FetchResponse,
    NotLeader,
    Records,
    SnapshotNeeded,
)
from millrace_server.raft.replica import Replica
from millrace_server.raft.roles import Leader, Resigned


def lead(replica: Replica) -> None:
    """Becomes the leader of this epoch."""
    end_offset = replica.log.position.end_offset
    leadership = Leadership(replica.key, end_offset, replica.high_watermark, replica.now_ms)
    state = replace(replica.state, leader_id=replica.key.broker_id)
    replica.take_role(Leader(leadership), state=state)
    replica.out.append(BeginEpoch(replica.epoch))
    announce(replica, leadership)


def announce(replica: Replica, leadership: Leadership) -> None:
    """Tells the voters that do not fetch which broker leads."""
    leadership.announce_ms = replica.now_ms + replica.config.retry_ms
    since_ms = replica.now_ms - replica.config.fetch_timeout_ms
    for key in leadership.silent(replica.voters, since_ms=since_ms):
        replica.send(BeginEpochRequest(replica.key, key.broker_id, replica.epoch))


def on_deadline(replica: Replica, leadership: Leadership) -> None:
    """Resigns, responds to fetches whose time is over, and announces the leader: what is due."""
    resign_at = resign_ms(replica, leadership)
    if resign_at is not None and resign_at <= replica.now_ms:
        resign(replica, leadership)
        return
    for request in leadership.due(replica.now_ms):
        _respond(replica, request, Records(request.fetch_offset))
    if leadership.announce_ms <= replica.now_ms:
        announce(replica, leadership)


def resign_ms(replica: Replica, leadership: Leadership) -> int | None:
    """When the leader resigns unless more voters fetch; None if it needs no other voter."""
    return leadership.quorum_deadline_ms(replica.voters, timeout_ms=replica.config.fetch_timeout_ms)


def resign(replica: Replica, leadership: Leadership) -> None:
    """Leads no more in this epoch, and says so."""
    successors = leadership.successors(replica.voters)
    for key in replica.voters.others(replica.key):
        replica.send(EndEpochRequest(replica.key, key.broker_id, replica.epoch, successors))
    replica.take_role(Resigned(replica.now_ms + replica.election_timeout_ms()))


def on_request(replica: Replica, request: FetchRequest) -> None:
    """Responds to a fetch, or parks it until there is something to tell."""
    role = replica.role
    if not isinstance(role, Leader) or request.epoch < replica.epoch:
        _respond(replica, request, NotLeader())
        return
    refusal = _disagreement(replica, request)
    if refusal is not None:
        _respond(replica, request, refusal)
        return
    leadership, end_offset = role.leadership, replica.log.position.end_offset
    leadership.note_fetch(request, end_offset=end_offset, now_ms=replica.now_ms)
    deadline_ms = replica.now_ms + replica.config.fetch_wait_ms
    leadership.parked[request.source] = ParkedFetch(request, deadline_ms)
    advance(replica, leadership)
    respond_ready(replica, leadership)


def _disagreement(replica: Replica, request: FetchRequest) -> FetchOutcome | None:
    """Why the leader's log does not go on where the follower's ends; None if it does."""
    log = replica.log
    snapshot = log.newest_snapshot()
    asked = (request.fetch_offset, request.last_epoch)
    if request.fetch_offset >= log.start_offset:
        if request.fetch_offset == 0 or asked == snapshot:
            return None
        end = _end_for(log, request.last_epoch)
        if end is not None and end.end_offset >= log.start_offset:
            agrees = end.epoch == request.last_epoch and request.fetch_offset <= end.end_offset
            return None if agrees else Diverging(end)
    if snapshot is None:
        # Nothing was taken off the front of this log: the two have nothing in common.
        return Diverging(EpochEnd(NO_EPOCH, 0))
    return SnapshotNeeded(snapshot)


def _end_for(log: LogView, epoch: int) -> EpochEnd | None:
    """See `LogView.end_offset_for`. Of a log that begins where its snapshot ends the snapshot alone
    knows the epoch of the last record before, and nothing knows where older ones end."""
    end, snapshot = log.end_offset_for(epoch), log.newest_snapshot()
    if end is None or snapshot is None or end.end_offset < snapshot.end_offset:
        return end
    if end.epoch >= snapshot.epoch:
        return end
    return EpochEnd(snapshot.epoch, end.end_offset) if snapshot.epoch <= epoch else None


def advance(replica: Replica, leadership: Leadership) -> None:
    """Commits what a majority has on the disk."""
    if not leadership.advance(replica.voters, durable_offset=replica.log.durable_offset):
        return
    replica.raise_high_watermark(leadership.high_watermark)
    respond_ready(replica, leadership)
    if not replica.is_voter and replica.history.latest_offset < replica.high_watermark:
        # The leader's own removal is committed (KIP-853).
        resign(replica, leadership)


def respond_ready(replica: Replica, leadership: Leadership) -> None:
    """Responds to the parked fetches that have something to tell now."""
    for request in leadership.ready(end_offset=replica.log.position.end_offset):
        _respond(replica, request, Records(request.fetch_offset))


def _respond(replica: Replica, request: FetchRequest, outcome: FetchOutcome) -> None:
    response = FetchResponse(
        replica.key,
        request.source.broker_id,
        replica.epoch,
        request.fetch_id,
        replica.leader_id,
        replica.high_watermark,
        outcome,
    )
    replica.send(response)
