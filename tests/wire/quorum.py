"""Checks of W-4.29 and W-12: the metadata quorum, and the apis that only brokers speak."""

from __future__ import annotations

from uuid import UUID

from tests.wire.check import Target, check, equal, true

UNKNOWN_API = 1002
BETWEEN_BROKERS = (52, 53, 54, 56, 59, 62, 63, 67, 73, 1010, 1011, 1012)


@check("W-4.29", "W-4.29.1")
def the_quorum_has_a_leader_that_is_a_voter(target: Target) -> None:
    """A majority of the voters has what is committed."""
    with target.connect() as wire:
        found = wire.call("DescribeQuorum")
        equal(found.error_code, 0, "the code")
        true(found.leader_epoch >= 0, f"leader epoch {found.leader_epoch}")
        voters = {each.broker_id: each for each in found.replicas if each.is_voter}
        true(found.leader_id in voters, f"{found.leader_id} leads and {list(voters)} vote")
        equal(voters[found.leader_id].fetched_ms, 0, "fetched_ms of the leader")
        having = [each for each in voters.values() if each.end_offset >= found.high_watermark]
        true(len(having) > len(voters) // 2, f"{len(having)} of {len(voters)} have all")


@check("W-4.29")
def a_topic_moves_the_end_of_what_is_committed(target: Target) -> None:
    """The metadata log has every topic."""
    with target.connect() as wire:
        before = wire.call("DescribeQuorum").high_watermark
        target.topic(wire)
        true(wire.call("DescribeQuorum").high_watermark > before, "the high watermark stands")


@check("W-4.34", "W-4.34.1", "W-4.35")
def voters_that_are_not_there_change_nothing(target: Target) -> None:
    """BROKER_ID_NOT_REGISTERED, VOTER_NOT_FOUND; and DUPLICATE_VOTER for one that votes."""
    with target.connect() as wire:
        before = wire.call("DescribeQuorum")
        nobody, none = 2**31 - 1, UUID(int=0)
        equal(wire.call("AddRaftVoter", nobody, none).error_code, 102, "a broker that is not there")
        equal(wire.call("AddRaftVoter", before.leader_id, none).error_code, 126, "a voter")
        equal(wire.call("RemoveRaftVoter", nobody, none).error_code, 127, "no voter")
        other = UUID(int=9)
        found = wire.call("RemoveRaftVoter", before.leader_id, other)
        equal(found.error_code, 127, "a voter with another directory")
        voters = [each.broker_id for each in before.replicas if each.is_voter]
        after = [each.broker_id for each in wire.call("DescribeQuorum").replicas if each.is_voter]
        equal(after, voters, "the voters")


@check("W-12")
def clients_find_no_api_between_brokers(target: Target) -> None:
    """Hello does not name them, and their keys are refused."""
    with target.connect() as wire:
        assert wire.hello is not None
        named = {api.api for api in wire.hello.apis}
        equal(named & set(BETWEEN_BROKERS), set(), "apis between brokers in Hello")
        for key in BETWEEN_BROKERS:
            equal(wire.refusal_of(wire.send_body(key, b"")).code, UNKNOWN_API, str(key))
