"""Joining, syncing, heartbeats and leaving: the rules of Kafka's classic group protocol."""

from __future__ import annotations

from typing import Any

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.group.requests import LeaveGroupResult, LeavingMember
from tests.server.group.shell import REBALANCE_MS, SESSION_MS, Shell, offers, reads


def test_a_new_member_gets_its_id_and_leads_the_first_generation() -> None:
    shell = Shell()
    member_id = shell.member_id(shell.join())
    assert member_id == "c-0001"
    joined = shell.joined(shell.join(member_id))
    assert (joined.member_id, joined.leader_id, joined.generation) == ("c-0001", "c-0001", 1)
    assert (joined.protocol_type, joined.protocol) == ("consumer", "range")
    assert [each.member_id for each in joined.members] == ["c-0001"]
    assert joined.members[0].metadata == reads("flights")


def test_a_client_that_knows_no_pending_ids_joins_at_once() -> None:
    shell = Shell()
    assert shell.joined(shell.join(requires_known_member_id=False)).member_id == "c-0001"


def test_only_the_leader_is_told_the_members() -> None:
    shell = Shell()
    (leader,) = shell.stable(1)
    follower, waiting = shell.enter()
    leading = shell.joined(shell.join(leader))
    assert [each.member_id for each in leading.members] == [leader, follower]
    following = shell.joined(waiting)
    assert following.members == ()
    assert following.leader_id == leader
    assert following.generation == leading.generation == 2


def test_an_unknown_member_id_does_not_create_a_group() -> None:
    shell = Shell()
    shell.error(shell.join("c-0815"), ErrorCode.UNKNOWN_MEMBER_ID)
    assert shell.coordinator.list_groups() == []


def test_the_initial_delay_lets_more_members_into_the_first_generation() -> None:
    shell = Shell(initial_rebalance_delay_ms=3_000)
    first, first_token = shell.enter()
    shell.advance(2_999)
    second, second_token = shell.enter()
    shell.advance(1)
    assert shell.waits(first_token), "a new member extends the delay"
    shell.advance(2_999)
    assert shell.waits(first_token)
    shell.advance(1)
    assert [each.member_id for each in shell.joined(first_token).members] == [first, second]
    assert shell.joined(second_token).generation == 1


def test_the_initial_delay_is_extended_up_to_the_rebalance_timeout() -> None:
    shell = Shell(initial_rebalance_delay_ms=3_000)
    _, token = shell.enter(rebalance_timeout_ms=8_000)
    for _ in range(7):
        shell.advance(1_000)
        shell.enter()
        assert shell.waits(token)
    shell.advance(999)
    assert shell.waits(token)
    shell.advance(1)
    assert len(shell.joined(token).members) == 8


def test_the_initial_delay_is_not_extended_when_no_member_joins() -> None:
    shell = Shell(initial_rebalance_delay_ms=3_000)
    _, token = shell.enter()
    shell.advance(3_000)
    assert shell.joined(token).generation == 1


def test_generations_increase_by_one_with_each_rebalance() -> None:
    shell = Shell()
    (leader,) = shell.stable(1)
    for generation in range(2, 6):
        assert shell.joined(shell.join(leader)).generation == generation
        shell.sync(leader, generation)


def test_the_protocol_that_most_members_like_best_is_chosen() -> None:
    shell = Shell(initial_rebalance_delay_ms=10)
    tokens = [
        shell.enter(protocols=offers(*names))[1]
        for names in (("a", "b", "c"), ("c", "b", "x"), ("b", "c"))
    ]
    shell.advance(30)
    # Not all members support "a" and "x"; of "b" and "c" two members prefer "b".
    assert {shell.joined(token).protocol for token in tokens} == {"b"}


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": offers("sticky")},
        {"protocol_type": "connect"},
        {"protocols": ()},
    ],
)
def test_a_member_that_has_nothing_in_common_is_refused(changes: dict[str, Any]) -> None:
    shell = Shell()
    shell.stable(1)
    error = shell.error(shell.join(**changes), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert "'g'" in error.message
    assert shell.state() == "Stable"


@pytest.mark.parametrize("changes", [{"protocols": ()}, {"protocol_type": ""}])
def test_an_empty_group_takes_no_member_without_a_protocol(changes: dict[str, Any]) -> None:
    shell = Shell()
    shell.error(shell.join(**changes), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert shell.coordinator.list_groups() == [], "a refused join leaves no trace"


def test_a_protocol_that_is_offered_twice_is_refused() -> None:
    shell = Shell()
    error = shell.error(
        shell.join(protocols=offers("a", "a")), ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert "each once" in error.message


def test_a_group_that_was_emptied_may_be_of_another_type() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.leave(LeavingMember(member))
    _, token = shell.enter(protocol_type="connect", protocols=offers("compatible"))
    assert shell.joined(token).protocol_type == "connect"


def test_a_follower_that_joins_again_unchanged_keeps_the_generation() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    joined = shell.joined(shell.join(follower))
    assert (joined.generation, joined.leader_id, joined.members) == (2, leader, ())
    assert shell.state() == "Stable"


def test_a_follower_that_reads_something_else_causes_a_rebalance() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    token = shell.join(follower, protocols=offers("range", metadata=reads("ports")))
    assert shell.waits(token)
    assert shell.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    leading = shell.joined(shell.join(leader))
    assert leading.generation == 3
    assert {each.metadata for each in leading.members} == {reads("ports"), reads("flights")}


def test_a_leader_that_joins_again_causes_a_rebalance_even_unchanged() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    assert shell.waits(shell.join(leader))
    assert shell.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_lost_answer_to_a_join_is_given_again_before_the_assignment_is_there() -> None:
    shell = Shell()
    member, token = shell.enter()
    first = shell.joined(token)
    assert shell.joined(shell.join(member)) == first
    assert shell.state() == "CompletingRebalance"


def test_members_that_do_not_rejoin_in_time_are_dropped() -> None:
    shell = Shell()
    leader, follower, silent = shell.stable(3, session_timeout_ms=600_000)
    tokens = [shell.join(leader), shell.join(follower)]
    shell.advance(REBALANCE_MS - 1)
    assert all(shell.waits(token) for token in tokens)
    shell.advance(1)
    assert [each.member_id for each in shell.joined(tokens[0]).members] == [leader, follower]
    assert shell.heartbeat(silent, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_slowest_member_decides_how_long_a_rebalance_waits() -> None:
    shell = Shell()
    leader, _ = shell.stable(2, session_timeout_ms=600_000)
    shell.enter(rebalance_timeout_ms=90_000, session_timeout_ms=600_000)
    token = shell.join(leader, session_timeout_ms=600_000)
    shell.advance(REBALANCE_MS)
    assert shell.waits(token)


def test_a_leader_that_does_not_rejoin_is_followed_by_one_that_did() -> None:
    shell = Shell()
    _, *followers = shell.stable(3)
    protocols = offers("range", metadata=reads("ports"))
    tokens = [shell.join(each, protocols=protocols) for each in followers]
    shell.advance(REBALANCE_MS)
    assert shell.joined(tokens[0]).leader_id == followers[0]
    assert len(shell.joined(tokens[0]).members) == 2


def test_a_pending_member_is_waited_for() -> None:
    shell = Shell()
    (leader,) = shell.stable(1)
    new_member = shell.member_id(shell.join())
    token = shell.join(leader)
    assert shell.waits(token)
    shell.join(new_member)
    assert len(shell.joined(token).members) == 2


def test_a_pending_member_that_never_joins_is_waited_for_no_longer_than_its_session() -> None:
    shell = Shell()
    (leader,) = shell.stable(1)
    new_member = shell.member_id(shell.join())
    token = shell.join(leader)
    shell.advance(SESSION_MS - 1)
    assert shell.waits(token)
    shell.advance(1)
    assert len(shell.joined(token).members) == 1
    shell.error(shell.join(new_member), ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_later_join_of_a_member_takes_the_place_of_the_one_that_waits() -> None:
    shell = Shell()
    leader, _ = shell.stable(2)
    first = shell.join(leader)
    second = shell.join(leader)
    shell.error(first, ErrorCode.REBALANCE_IN_PROGRESS)
    assert shell.waits(second)


def test_followers_get_their_assignment_when_the_leaders_is_durable() -> None:
    shell = Shell()
    leader, token = shell.enter()
    follower, _ = shell.enter()
    generation = shell.joined(shell.join(leader)).generation
    waiting = shell.sync(follower, generation)
    assert shell.waits(waiting)
    shell.hold = True
    leading = shell.sync(leader, generation, {leader: b"one", follower: b"two"})
    assert shell.waits(waiting)
    assert shell.waits(leading)
    assert shell.state() == "CompletingRebalance"
    shell.make_durable()
    assert shell.assignment(waiting) == b"two"
    assert shell.assignment(leading) == b"one"
    assert shell.state() == "Stable"
    assert shell.joined(token).generation == 1


def test_a_late_sync_gets_the_same_assignment() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    assert shell.assignment(shell.sync(follower, 2)) == follower.encode()
    assert shell.assignment(shell.sync(leader, 2, {follower: b"other"})) == leader.encode()
    assert shell.assignment(shell.sync(follower, 2)) == follower.encode()


def test_members_that_the_leader_forgot_get_an_empty_assignment_and_unknown_ids_none() -> None:
    shell = Shell()
    leader, _ = shell.enter()
    follower, _ = shell.enter()
    generation = shell.joined(shell.join(leader)).generation
    waiting = shell.sync(follower, generation)
    shell.sync(leader, generation, {leader: b"all", "unknown": b"much"})
    assert shell.assignment(waiting) == b""
    members = shell.coordinator.image.groups["g"].members
    assert {each.member_id for each in members} == {leader, follower}


def test_a_leader_that_syncs_twice_is_answered_once_and_written_once() -> None:
    shell = Shell()
    leader, _ = shell.enter()
    shell.hold = True
    first = shell.sync(leader, 1, {leader: b"a"})
    second = shell.sync(leader, 1, {leader: b"b"})
    shell.error(first, ErrorCode.REBALANCE_IN_PROGRESS)
    assert len(shell.held) == 1
    shell.make_durable()
    assert shell.assignment(second) == b"a"


def test_a_member_that_joins_during_the_sync_phase_makes_all_join_again() -> None:
    shell = Shell()
    leader, _ = shell.enter()
    follower, _ = shell.enter()
    generation = shell.joined(shell.join(leader)).generation
    waiting = shell.sync(follower, generation)
    shell.enter()
    shell.error(waiting, ErrorCode.REBALANCE_IN_PROGRESS)
    late = shell.sync(leader, generation, {leader: b"x"})
    shell.error(late, ErrorCode.REBALANCE_IN_PROGRESS)


def test_an_assignment_that_becomes_durable_too_late_is_given_to_no_member() -> None:
    shell = Shell()
    leader, _ = shell.enter()
    shell.hold = True
    token = shell.sync(leader, 1, {leader: b"all"})
    shell.enter()
    shell.error(token, ErrorCode.REBALANCE_IN_PROGRESS)
    shell.make_durable()
    assert shell.state() == "PreparingRebalance"
    assert shell.joined(shell.join(leader)).generation == 2


def test_an_assignment_of_an_older_generation_is_never_taken_for_that_of_the_next() -> None:
    shell = Shell()
    leader, _ = shell.enter()
    shell.hold = True
    shell.sync(leader, 1, {leader: b"old"})
    new_member, _ = shell.enter()
    assert shell.joined(shell.join(leader)).generation == 2
    waiting = shell.sync(new_member, 2)
    shell.make_durable()
    assert shell.waits(waiting)
    assert shell.state() == "CompletingRebalance"
    shell.sync(leader, 2, {new_member: b"new"})
    shell.make_durable()
    assert shell.assignment(waiting) == b"new"


def test_a_member_that_does_not_sync_within_the_rebalance_timeout_is_removed() -> None:
    shell = Shell()
    leader, token = shell.enter(session_timeout_ms=600_000)
    follower, _ = shell.enter(session_timeout_ms=600_000)
    generation = shell.joined(shell.join(leader, session_timeout_ms=600_000)).generation
    waiting = shell.sync(follower, generation)
    shell.advance(REBALANCE_MS - 1)
    assert shell.waits(waiting)
    shell.advance(1)
    shell.error(waiting, ErrorCode.REBALANCE_IN_PROGRESS)
    assert shell.heartbeat(leader, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    joined = shell.joined(shell.join(follower, session_timeout_ms=600_000))
    assert (joined.leader_id, joined.generation) == (follower, generation + 1)
    assert shell.joined(token).generation == 1


def test_a_follower_that_never_syncs_is_dropped_from_a_stable_group() -> None:
    shell = Shell()
    leader, _ = shell.enter(session_timeout_ms=600_000)
    follower, _ = shell.enter(session_timeout_ms=600_000)
    generation = shell.joined(shell.join(leader, session_timeout_ms=600_000)).generation
    shell.sync(leader, generation, {leader: b"all"})
    shell.advance(REBALANCE_MS)
    assert shell.heartbeat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.heartbeat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocol": "sticky"}], ids=["type", "name"]
)
def test_a_sync_for_another_protocol_is_refused(changes: dict[str, Any]) -> None:
    shell = Shell()
    (leader,) = shell.stable(1)
    error = shell.error(shell.sync(leader, 1, **changes), ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert next(iter(changes.values())) in error.message


def test_the_error_of_a_stale_generation_names_the_current_one_and_its_leader() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    error = shell.error(shell.sync(follower, 1), ErrorCode.ILLEGAL_GENERATION)
    assert "Generation 1" in error.message
    assert "generation 2" in error.message
    assert leader in error.message
    assert shell.heartbeat(follower, 1) is ErrorCode.ILLEGAL_GENERATION
    assert shell.heartbeat(follower, 3) is ErrorCode.ILLEGAL_GENERATION
    assert shell.heartbeat("unknown", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.heartbeat(leader, 2) is ErrorCode.NONE


def test_an_assignment_that_cannot_be_written_fails_all_syncs_and_is_computed_again() -> None:
    shell = Shell()
    leader, _ = shell.enter()
    follower, _ = shell.enter()
    generation = shell.joined(shell.join(leader)).generation
    shell.hold = True
    waiting = shell.sync(follower, generation)
    leading = shell.sync(leader, generation, {leader: b"x"})
    shell.fail_append()
    for token in (waiting, leading):
        assert "as the test wants it" in shell.error(token, ErrorCode.DISK_FULL).message
    assert shell.heartbeat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert "g" not in shell.coordinator.image.groups
    tokens = [shell.join(leader), shell.join(follower)]
    assert {shell.joined(token).generation for token in tokens} == {generation + 1}


def test_an_assignment_that_no_record_can_hold_is_refused() -> None:
    shell = Shell(group_metadata_bytes_max=1_000)
    leader, _ = shell.enter()
    token = shell.sync(leader, 1, {leader: bytes(1_000)})
    assert "1000" in shell.error(token, ErrorCode.UNKNOWN_SERVER_ERROR).message
    assert shell.log == []


def test_a_silent_member_is_dropped_after_its_session_and_not_before() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    shell.advance(SESSION_MS - 1)
    assert shell.heartbeat(leader, 2) is ErrorCode.NONE
    assert len(shell.coordinator.describe("g").members) == 2
    shell.advance(1)
    assert [each.member_id for each in shell.coordinator.describe("g").members] == [leader]
    assert shell.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_ends_with_the_rebalance_begins_anew_with_its_answer() -> None:
    shell = Shell()
    leader, follower, _ = shell.stable(3, rebalance_timeout_ms=SESSION_MS)
    tokens = [shell.join(leader, rebalance_timeout_ms=SESSION_MS)]
    shell.heartbeat(follower, 3)
    tokens.append(shell.join(follower, rebalance_timeout_ms=SESSION_MS))
    shell.advance(SESSION_MS)
    assert {shell.joined(token).generation for token in tokens} == {4}
    members = shell.coordinator.describe("g").members
    assert [each.member_id for each in members] == [leader, follower]
    shell.advance(SESSION_MS - 1)
    assert shell.heartbeat(follower, 4) is ErrorCode.NONE


def test_a_member_that_has_not_synced_when_another_fails_may_still_rejoin() -> None:
    shell = Shell()
    leader, _ = shell.enter(rebalance_timeout_ms=SESSION_MS)
    follower, _ = shell.enter(rebalance_timeout_ms=SESSION_MS)
    generation = shell.joined(shell.join(leader, rebalance_timeout_ms=SESSION_MS)).generation
    shell.advance(SESSION_MS - 1)
    assert shell.heartbeat(follower, generation) is ErrorCode.NONE
    shell.advance(1)
    assert shell.heartbeat(leader, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.heartbeat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.joined(shell.join(follower)).leader_id == follower


def test_members_that_wait_for_the_others_do_not_time_out() -> None:
    shell = Shell()
    leader, follower, slow = shell.stable(3)
    tokens = [shell.join(leader), shell.join(follower)]
    for _ in range(5):
        shell.advance(SESSION_MS - 1)
        assert shell.heartbeat(slow, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    generation = shell.joined(shell.join(slow)).generation
    assert all(shell.joined(token).generation == generation for token in tokens)
    waiting = shell.sync(follower, generation)
    for _ in range(3):
        shell.advance(SESSION_MS - 1)
        assert shell.heartbeat(leader, generation) is ErrorCode.NONE
        assert shell.heartbeat(slow, generation) is ErrorCode.NONE
    shell.sync(leader, generation, {follower: b"f"})
    assert shell.assignment(waiting) == b"f"
    shell.advance(SESSION_MS - 1)
    assert shell.heartbeat(follower, generation) is ErrorCode.NONE


def test_a_new_member_whose_connection_is_gone_is_removed_after_a_time() -> None:
    shell = Shell(new_member_join_timeout_ms=20_000)
    (leader,) = shell.stable(1, session_timeout_ms=600_000, rebalance_timeout_ms=600_000)
    _, token = shell.enter()
    shell.advance(19_999)
    assert shell.waits(token)
    shell.advance(1)
    shell.error(token, ErrorCode.UNKNOWN_MEMBER_ID)
    assert [each.member_id for each in shell.coordinator.describe("g").members] == [leader]


def test_the_last_member_that_leaves_empties_the_group_in_a_generation_of_its_own() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.leave(LeavingMember(member))
    assert shell.state() == "Empty"
    stored = shell.coordinator.image.groups["g"]
    assert (stored.generation, stored.members, stored.leader_id) == (2, (), None)
    assert shell.heartbeat(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_makes_the_others_rebalance() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    left = shell.result(shell.leave(LeavingMember(leader)), LeaveGroupResult)
    assert left.members[0].error is None
    assert shell.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.joined(shell.join(follower)).leader_id == follower


def test_a_leave_answers_each_member_for_itself() -> None:
    shell = Shell()
    members = shell.stable(2)
    pending = shell.member_id(shell.join())
    token = shell.leave(
        LeavingMember(members[0]),
        LeavingMember("unknown"),
        LeavingMember(pending),
        LeavingMember("", "no-such-instance"),
        LeavingMember(members[1], "no-such-instance"),
    )
    codes = [
        each.error.code if each.error else None
        for each in shell.result(token, LeaveGroupResult).members
    ]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [None, unknown, None, unknown, unknown]
    assert [each.member_id for each in shell.coordinator.describe("g").members] == [members[1]]


def test_a_member_that_leaves_gets_an_error_for_its_parked_request() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    joining = shell.join(leader)
    shell.leave(LeavingMember(leader))
    shell.error(joining, ErrorCode.UNKNOWN_MEMBER_ID)
    generation = shell.joined(shell.join(follower)).generation
    third, _ = shell.enter()
    generation = shell.joined(shell.join(follower)).generation
    syncing = shell.sync(third, generation)
    shell.leave(LeavingMember(third))
    shell.error(syncing, ErrorCode.UNKNOWN_MEMBER_ID)


def test_leaving_a_group_that_does_not_exist_answers_every_member() -> None:
    shell = Shell()
    left = shell.result(shell.leave(LeavingMember("a"), LeavingMember("b")), LeaveGroupResult)
    codes = [each.error.code for each in left.members if each.error]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


@pytest.mark.parametrize("session_timeout_ms", [0, 5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_timeout_ms: int) -> None:
    shell = Shell()
    token = shell.join(session_timeout_ms=session_timeout_ms)
    assert "6000 to 1800000" in shell.error(token, ErrorCode.INVALID_SESSION_TIMEOUT).message


def test_the_bounds_of_session_timeouts_are_allowed_and_can_be_lowered() -> None:
    assert Shell().enter(session_timeout_ms=6_000)
    assert Shell().enter(session_timeout_ms=1_800_000)
    assert Shell(session_timeout_min_ms=50).enter(session_timeout_ms=50)


@pytest.mark.parametrize("group", ["", "x" * 250])
def test_a_group_id_has_bounds(group: str) -> None:
    shell = Shell()
    shell.error(shell.join(group=group), ErrorCode.INVALID_GROUP_ID)
    assert shell.heartbeat("m", 1, group=group) is ErrorCode.INVALID_GROUP_ID
    assert shell.code(shell.commit(1, group=group)) is ErrorCode.INVALID_GROUP_ID
    assert shell.enter(group="x" * 249)


def test_an_empty_instance_id_and_endless_names_are_refused() -> None:
    shell = Shell()
    shell.error(shell.join(instance_id=""), ErrorCode.INVALID_REQUEST)
    error = shell.error(shell.join(client_id="x" * 100_000), ErrorCode.INVALID_REQUEST)
    assert len(error.message) <= 1_000
    shell.error(shell.join(protocols=offers("x" * 1_025)), ErrorCode.INVALID_REQUEST)


def test_a_full_group_takes_no_further_member_and_its_members_rejoin() -> None:
    shell = Shell(group_size_max=2)
    leader, follower = shell.stable(2)
    error = shell.error(shell.join(), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert "group.max.size" in error.message
    tokens = [shell.join(leader), shell.join(follower)]
    assert all(shell.joined(token).generation == 3 for token in tokens)


def test_metadata_that_no_record_can_hold_is_refused() -> None:
    shell = Shell(group_metadata_bytes_max=3_000)
    shell.stable(1)
    big = offers("range", metadata=bytes(3_000))
    assert (
        "3000" in shell.error(shell.join(protocols=big), ErrorCode.GROUP_MAX_SIZE_REACHED).message
    )
    assert shell.state() == "Stable"


def test_a_hundred_members_settle_with_one_answer_each() -> None:
    shell = Shell()
    members = [shell.enter()[0] for _ in range(100)]
    tokens = [shell.join(each) for each in members]
    joined = [shell.joined(token) for token in tokens if not shell.waits(token)]
    generation = joined[0].generation
    assert len(joined) == 100
    assert {each.generation for each in joined} == {generation}
    assert len(joined[0].members) == 100
    tokens = [shell.sync(each, generation) for each in members[1:]]
    shell.sync(members[0], generation, {each: each.encode() for each in members})
    assert [shell.assignment(token).decode() for token in tokens] == members[1:]
