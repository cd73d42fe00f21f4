"""Sets of voters, their history, and the file of an election's state."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_server.raft.election_state import ElectionState
from millrace_server.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet

KEYS = [ReplicaKey(number, uuid.UUID(int=number)) for number in range(1, 6)]
VOTERS = [Voter(key, "host", 9092) for key in KEYS]


def test_any_two_majorities_of_neighbouring_sets_share_a_voter() -> None:
    for count in range(1, 5):
        smaller, larger = VoterSet.of(VOTERS[:count]), VoterSet.of(VOTERS[: count + 1])
        assert smaller.majority + larger.majority > len(larger)


def test_majority_offset_counts_a_missing_voter_as_nothing() -> None:
    voters = VoterSet.of(VOTERS[:3])
    assert voters.majority_offset({KEYS[0]: 9, KEYS[4]: 9}) == 0
    assert voters.majority_offset({KEYS[0]: 9, KEYS[2]: 4}) == 4


def test_broker_with_another_directory_is_another_voter() -> None:
    voters = VoterSet.of(VOTERS[:3])
    assert ReplicaKey(1, uuid.UUID(int=99)) not in voters
    with pytest.raises(ValueError, match="stands twice"):
        voters.with_voter(Voter(ReplicaKey(1, uuid.UUID(int=99)), "host", 9092))


def test_last_voter_cannot_be_removed() -> None:
    with pytest.raises(ValueError, match="last voter"):
        VoterSet.of(VOTERS[:1]).without(KEYS[0])


def test_truncated_voters_are_not_in_force() -> None:
    first, second = VoterSet.of(VOTERS[:3]), VoterSet.of(VOTERS[:2])
    history = VoterHistory(first).add(10, second)
    assert history.latest == second
    assert history.truncate_to(10).latest == first


def test_leader_may_commit_its_own_removal() -> None:
    history = VoterHistory(VoterSet.of(VOTERS[:3])).add(10, VoterSet.of(VOTERS[:2]))
    assert history.may_lead(KEYS[2], high_watermark=10)
    assert not history.may_lead(KEYS[2], high_watermark=11)


@given(
    epoch=st.integers(0, 2**31 - 1),
    voted=st.none() | st.sampled_from(KEYS),
    leader_id=st.none() | st.integers(0, 2**31 - 1),
)
def test_election_state_survives_its_file(
    epoch: int, voted: ReplicaKey | None, leader_id: int | None
) -> None:
    state = ElectionState(epoch, voted, leader_id)
    data = state.encode()
    assert ElectionState.decode(data) == state
    assert ElectionState.decode(data[:-1]) is None
    assert ElectionState.decode(data[:-1] + bytes([data[-1] ^ 1])) is None
