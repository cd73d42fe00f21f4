"""Static members (KIP-345, KIP-814): a restart is no rebalance, and an instance is one process."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.group.requests import LeaveGroupResult, LeavingMember
from tests.server.group.shell import REBALANCE_MS, SESSION_MS, Shell, offers, reads


def two_instances(shell: Shell) -> tuple[str, str]:
    """Instances "a", which leads, and "b", in a stable generation 2."""
    leader = shell.joined(shell.join(instance_id="a")).member_id
    token = shell.join(instance_id="b")
    joined = shell.joined(shell.join(leader, instance_id="a"))
    follower = shell.joined(token).member_id
    shell.sync(leader, joined.generation, {leader: b"for a", follower: b"for b"})
    shell.sync(follower, joined.generation, instance_id="b")
    assert (shell.state(), shell.generation()) == ("Stable", 2)
    return leader, follower


def test_a_new_static_member_joins_at_once_under_an_id_made_of_its_instance_id() -> None:
    shell = Shell()
    assert shell.joined(shell.join(instance_id="a")).member_id == "a-0001"


def test_a_follower_that_restarts_keeps_its_assignment_without_a_rebalance() -> None:
    shell = Shell()
    leader, follower = two_instances(shell)
    joined = shell.joined(shell.join(instance_id="b"))
    assert joined.member_id != follower
    assert (joined.generation, joined.leader_id, joined.members) == (2, leader, ())
    assert shell.state() == "Stable"
    assert shell.assignment(shell.sync(joined.member_id, 2, instance_id="b")) == b"for b"
    assert shell.heartbeat(leader, 2, instance_id="a") is ErrorCode.NONE


def test_the_new_id_is_durable_before_it_is_given_out() -> None:
    shell = Shell()
    two_instances(shell)
    shell.hold = True
    token = shell.join(instance_id="b")
    assert shell.waits(token)
    shell.make_durable()
    member_id = shell.joined(token).member_id
    shell.restart()
    assert shell.heartbeat(member_id, 2, instance_id="b") is ErrorCode.NONE
    assert shell.assignment(shell.sync(member_id, 2, instance_id="b")) == b"for b"


def test_a_new_id_that_cannot_be_written_leaves_the_old_one_in_place() -> None:
    shell = Shell()
    leader, follower = two_instances(shell)
    shell.hold = True
    token = shell.join(instance_id="b")
    assert shell.heartbeat(follower, 2, instance_id="b") is ErrorCode.FENCED_INSTANCE_ID
    shell.fail_append(ErrorCode.KAFKA_STORAGE_ERROR)
    shell.error(token, ErrorCode.NOT_COORDINATOR)
    assert shell.heartbeat(follower, 2, instance_id="b") is ErrorCode.NONE
    assert shell.heartbeat(leader, 2, instance_id="a") is ErrorCode.NONE


def test_a_restart_before_the_first_sync_is_waited_for_under_the_new_id() -> None:
    shell = Shell()
    leader = shell.joined(shell.join(instance_id="a")).member_id
    shell.join(instance_id="b")
    shell.join(leader, instance_id="a")
    shell.sync(leader, 2, {})
    current = shell.joined(shell.join(instance_id="b")).member_id
    shell.sync(current, 2, instance_id="b")
    for _ in range(REBALANCE_MS // SESSION_MS + 2):
        shell.advance(SESSION_MS - 1)
        assert shell.heartbeat(leader, 2, instance_id="a") is ErrorCode.NONE
        assert shell.heartbeat(current, 2, instance_id="b") is ErrorCode.NONE


def test_every_request_of_the_old_process_is_fenced() -> None:
    shell = Shell()
    _, follower = two_instances(shell)
    current = shell.joined(shell.join(instance_id="b")).member_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert shell.heartbeat(follower, 2, instance_id="b") is fenced
    error = shell.error(shell.sync(follower, 2, instance_id="b"), fenced)
    assert current in error.message
    shell.error(shell.join(follower, instance_id="b"), fenced)
    commit = shell.commit(5, member_id=follower, generation=2, instance_id="b")
    assert shell.code(commit) is fenced
    left = shell.result(shell.leave(LeavingMember(follower, "b")), LeaveGroupResult)
    assert left.members[0].error is not None
    assert left.members[0].error.code is fenced
    assert shell.heartbeat(current, 2, instance_id="b") is ErrorCode.NONE


def test_a_leader_that_restarts_knows_the_members_and_skips_the_assignment() -> None:
    shell = Shell()
    _, follower = two_instances(shell)
    joined = shell.joined(shell.join(instance_id="a"))
    assert joined.leader_id == joined.member_id
    assert joined.skip_assignment
    assert {each.member_id for each in joined.members} == {joined.member_id, follower}
    assert shell.assignment(shell.sync(joined.member_id, 2, instance_id="a")) == b"for a"


def test_a_leader_that_cannot_skip_the_assignment_is_told_that_its_old_id_leads() -> None:
    shell = Shell()
    leader, _ = two_instances(shell)
    joined = shell.joined(shell.join(instance_id="a", can_skip_assignment=False))
    assert (joined.leader_id, joined.members, joined.skip_assignment) == (leader, (), False)


def test_a_restart_that_reads_other_topics_is_a_rebalance() -> None:
    shell = Shell()
    two_instances(shell)
    other = offers("range", metadata=reads("flights", "ports"))
    assert shell.waits(shell.join(instance_id="b", protocols=other))
    assert shell.state() == "PreparingRebalance"


def test_a_restart_that_has_forgotten_what_it_owned_is_no_rebalance() -> None:
    shell = Shell()
    two_instances(shell)
    other = offers("range", metadata=reads("flights", note=b"owned nothing"))
    assert shell.joined(shell.join(instance_id="b", protocols=other)).generation == 2
    assert shell.state() == "Stable"


def test_a_restart_that_changes_the_chosen_protocol_is_a_rebalance() -> None:
    shell = Shell()
    both = offers("range", "sticky")
    leader = shell.joined(shell.join(instance_id="a", protocols=both)).member_id
    shell.sync(leader, 1)
    assert shell.state() == "Stable"
    token = shell.join(instance_id="a", protocols=offers("sticky", "range"))
    assert shell.joined(token).protocol == "sticky"
    assert shell.joined(token).generation == 2


def test_a_restart_during_the_sync_phase_is_a_rebalance_and_fences_the_parked_sync() -> None:
    shell = Shell()
    leader = shell.joined(shell.join(instance_id="a")).member_id
    first = shell.join(instance_id="b")
    shell.join(leader, instance_id="a")
    follower = shell.joined(first).member_id
    waiting = shell.sync(follower, 2, instance_id="b")
    again = shell.join(instance_id="b")
    shell.error(waiting, ErrorCode.FENCED_INSTANCE_ID)
    assert shell.waits(again)
    assert shell.state() == "PreparingRebalance"


def test_a_restart_while_joins_wait_fences_the_parked_join_and_replaces_it() -> None:
    shell = Shell()
    leader, follower = two_instances(shell)
    other = offers("range", metadata=reads("ports"))
    waiting = shell.join(follower, instance_id="b", protocols=other)
    again = shell.join(instance_id="b", protocols=other)
    shell.error(waiting, ErrorCode.FENCED_INSTANCE_ID)
    joined = shell.joined(shell.join(leader, instance_id="a"))
    current = shell.joined(again).member_id
    assert [each.member_id for each in joined.members] == [leader, current]


def test_static_members_that_do_not_rejoin_keep_their_place_until_their_session_ends() -> None:
    shell = Shell()
    leader, follower = two_instances(shell)
    token = shell.join(leader, instance_id="a")
    for _ in range(7):
        shell.advance(SESSION_MS - 1)
        shell.heartbeat(follower, 2, instance_id="b")
    joined = shell.joined(token)
    assert {each.member_id for each in joined.members} == {leader, follower}
    shell.advance(SESSION_MS)
    remaining = shell.coordinator.describe("g").members
    assert follower not in {each.member_id for each in remaining}


def test_a_rebalance_that_no_static_member_joins_waits_for_their_sessions() -> None:
    shell = Shell()
    shell.join(instance_id="a", session_timeout_ms=100_000)
    leader = shell.coordinator.describe("g").members[0].member_id
    shell.sync(leader, 1)
    new_member, token = shell.enter()
    shell.leave(LeavingMember(new_member))
    shell.error(token, ErrorCode.UNKNOWN_MEMBER_ID)
    assert shell.state() == "PreparingRebalance"
    shell.advance(REBALANCE_MS)
    assert shell.state() == "PreparingRebalance"
    assert shell.heartbeat(leader, 1, instance_id="a") is ErrorCode.REBALANCE_IN_PROGRESS
    shell.advance(100_000)
    assert shell.state() == "Empty"


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    shell = Shell()
    leader, _ = two_instances(shell)
    left = shell.result(shell.leave(LeavingMember("", "b")), LeaveGroupResult)
    assert left.members[0].error is None
    assert [each.member_id for each in shell.coordinator.describe("g").members] == [leader]


def test_a_static_member_can_restart_in_a_full_group() -> None:
    shell = Shell(group_size_max=2)
    two_instances(shell)
    assert shell.joined(shell.join(instance_id="b")).generation == 2
    shell.error(shell.join(instance_id="c"), ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_an_id_that_was_given_to_a_dynamic_member_is_no_static_members() -> None:
    shell = Shell()
    pending = shell.member_id(shell.join())
    shell.error(shell.join(pending, instance_id="a"), ErrorCode.INVALID_REQUEST)


def test_an_instance_that_has_left_has_to_begin_again() -> None:
    shell = Shell()
    _, follower = two_instances(shell)
    shell.leave(LeavingMember(follower, "b"))
    shell.error(shell.join(follower, instance_id="b"), ErrorCode.UNKNOWN_MEMBER_ID)
