"""Elections: which votes are asked for, given and counted (Raft §5.2, §5.4.1; KIP-996)."""

from __future__ import annotations

from dataclasses import replace

from millrace_server.raft.election_state import ElectionState
from millrace_server.raft.following import follow, learn_leader
from millrace_server.raft.leading import lead
from millrace_server.raft.messages import VoteRequest, VoteResponse
from millrace_server.raft.replica import Replica
from millrace_server.raft.roles import Candidate, Follower, Leader, Prospective, Unattached
from millrace_server.raft.voters import ReplicaKey


def begin(replica: Replica) -> None:
    """Asks whether the voters would vote: no epoch begins that could not be won."""
    role = Prospective(replica.now_ms + replica.election_timeout_ms(), replica.now_ms)
    replica.take_role(role)
    _count(replica, role, replica.key, is_granted=True)
    if replica.role is role:
        ask(replica, role)


def _become_candidate(replica: Replica) -> None:
    role = Candidate(replica.now_ms + replica.election_timeout_ms(), replica.now_ms)
    replica.take_role(role, state=ElectionState(replica.epoch + 1, voted=replica.key))
    _count(replica, role, replica.key, is_granted=True)
    if replica.role is role:
        ask(replica, role)


def ask(replica: Replica, role: Prospective | Candidate) -> None:
    """Asks every voter that has not responded."""
    role.retry_ms = replica.now_ms + replica.config.retry_ms
    for key in role.ballot.missing(replica.voters):
        request = VoteRequest(
            replica.key,
            key.broker_id,
            replica.epoch,
            key,
            replica.log.position,
            isinstance(role, Prospective),
        )
        replica.send(request)


def on_request(replica: Replica, request: VoteRequest) -> None:
    """Gives a vote or refuses it. A vote is durable before it is sent."""
    if request.epoch < replica.epoch or request.last < replica.log.position:
        is_granted = False
    elif request.is_pre_vote:
        is_granted = _would_vote(replica)
    else:
        is_granted = _may_vote(replica, request)
        if is_granted:
            replica.detach(state=replace(replica.state, voted=request.source))
    respond(replica, request, is_granted=is_granted)


def respond(replica: Replica, request: VoteRequest, *, is_granted: bool) -> None:
    """Sends the response."""
    response = VoteResponse(
        replica.key,
        request.source.broker_id,
        replica.epoch,
        replica.leader_id,
        is_granted,
        request.is_pre_vote,
    )
    replica.send(response)


def _would_vote(replica: Replica) -> bool:
    """Not beside a leader: a replica that lost its own link must not end a good epoch."""
    role = replica.role
    return not isinstance(role, Leader) and not (isinstance(role, Follower) and role.has_fetched)


def _may_vote(replica: Replica, request: VoteRequest) -> bool:
    """Once in an epoch, and not beside a leader of it."""
    state = replica.state
    is_free = isinstance(replica.role, Unattached | Prospective) and state.leader_id is None
    return is_free and state.voted in (None, request.source)


def on_response(replica: Replica, response: VoteResponse) -> None:
    """Counts a vote of the round that is going on."""
    learn_leader(replica, response.epoch, response.leader_id)
    role = replica.role
    if response.epoch != replica.epoch or not isinstance(role, Prospective | Candidate):
        return
    if response.is_pre_vote == isinstance(role, Prospective):
        _count(replica, role, response.source, is_granted=response.is_granted)


def _count(
    replica: Replica, role: Prospective | Candidate, voter: ReplicaKey, *, is_granted: bool
) -> None:
    ballot, voters = role.ballot, replica.voters
    ballot.count(voter, is_granted=is_granted)
    if ballot.is_won(voters):
        if isinstance(role, Candidate):
            lead(replica)
        else:
            _become_candidate(replica)
    elif ballot.is_lost(voters) and isinstance(role, Prospective):
        give_up(replica)


def give_up(replica: Replica) -> None:
    """No majority would vote: there is a leader, or a longer log. The epoch goes on."""
    leader_id = replica.state.leader_id
    if leader_id is None or leader_id == replica.key.broker_id:
        replica.detach()
    else:
        follow(replica, leader_id)
