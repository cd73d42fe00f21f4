"""What a restart finds, and that floods of pending ids and empty groups harm no member."""

from __future__ import annotations

from typing import Any

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.coordinator.shard import Append, Moment, Reply
from millrace_server.group.coordinator import GroupCoordinatorShard
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.requests import (
    JoinGroup,
    JoinGroupResult,
    LeavingMember,
    MemberIdRequired,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
)
from millrace_server.group_config import GroupConfig
from tests.server.group.shell import SESSION_MS, Shell, offers


@pytest.mark.parametrize("compacted", [False, True])
def test_a_stable_group_goes_on_after_a_restart_as_if_nothing_had_been(compacted: bool) -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    shell.commit(7, member_id=leader, generation=2)
    shell.restart(compacted=compacted)
    assert shell.state() == "Stable"
    for member in (leader, follower):
        assert shell.heartbeat(member, 2) is ErrorCode.NONE
        assert shell.assignment(shell.sync(member, 2)) == member.encode()
    assert shell.committed() == 7
    assert shell.coordinator.describe("g").leader_id == leader
    assert shell.code(shell.commit(8, member_id=follower, generation=2)) is ErrorCode.NONE


def test_members_have_a_new_session_after_a_restart() -> None:
    shell = Shell()
    shell.stable(2)
    shell.advance(SESSION_MS - 1)
    shell.restart()
    shell.advance(SESSION_MS - 1)
    assert len(shell.coordinator.describe("g").members) == 2
    shell.advance(1)
    assert shell.state() == "Empty"


def test_members_carry_on_after_a_restart_in_the_middle_of_the_join_phase() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    new_member, _ = shell.enter()
    shell.join(follower)
    assert shell.state() == "PreparingRebalance"
    shell.restart()
    assert shell.state() == "Stable"
    assert shell.heartbeat(leader, 2) is ErrorCode.NONE
    shell.error(shell.join(new_member), ErrorCode.UNKNOWN_MEMBER_ID)
    new_member, joining = shell.enter()
    assert shell.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    tokens = [joining, shell.join(leader), shell.join(follower)]
    assert {shell.joined(token).generation for token in tokens} == {3}
    assert shell.joined(tokens[1]).leader_id == leader


def test_members_carry_on_after_a_restart_in_the_middle_of_the_sync_phase() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    shell.join(leader)
    assert shell.joined(shell.join(follower)).generation == 3
    shell.hold = True
    shell.sync(follower, 3)
    shell.sync(leader, 3, {leader: b"never durable"})
    shell.restart()
    shell.hold = False
    assert (shell.state(), shell.generation()) == ("Stable", 2)
    shell.error(shell.sync(follower, 3), ErrorCode.ILLEGAL_GENERATION)
    assert shell.heartbeat(leader, 3) is ErrorCode.ILLEGAL_GENERATION
    assert shell.joined(shell.join(follower)).generation == 2, "it has missed nothing"
    token = shell.join(leader)
    shell.join(follower)
    assert shell.joined(token).generation == 3


def test_a_first_generation_that_was_not_durable_is_begun_again() -> None:
    shell = Shell()
    member, _ = shell.enter()
    shell.restart()
    assert shell.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    shell.error(shell.join(member), ErrorCode.UNKNOWN_MEMBER_ID)
    assert shell.joined(shell.enter()[1]).generation == 1


def test_an_assignment_that_was_durable_before_the_restart_is_given_after_it() -> None:
    shell = Shell()
    leader, _ = shell.enter()
    shell.sync(leader, 1, {leader: b"all"})
    shell.replies.clear()
    shell.restart()
    assert shell.assignment(shell.sync(leader, 1)) == b"all"


def test_an_emptied_group_stays_empty_and_counts_on_after_a_restart() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.commit(3, member_id=member, generation=1)
    shell.leave(LeavingMember(member))
    shell.restart()
    assert (shell.state(), shell.generation(), shell.committed()) == ("Empty", 2, 3)
    assert shell.joined(shell.enter()[1]).generation == 3


def test_a_group_over_a_lowered_limit_rebalances_and_the_last_to_rejoin_goes() -> None:
    shell = Shell()
    members = shell.stable(3)
    shell.config = GroupConfig(group_size_max=2, initial_rebalance_delay_ms=0)
    shell.restart()
    assert shell.state() == "PreparingRebalance"
    tokens = [shell.join(each) for each in members]
    shell.error(tokens[2], ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert len(shell.joined(tokens[0]).members) == 2
    assert shell.joined(tokens[1]).generation == 4


def test_a_shard_that_is_unloaded_keeps_no_timer_and_nothing_of_the_quota() -> None:
    shell = Shell()
    leader, _ = shell.stable(2)
    shell.join(leader)
    shell.enter(group="other")
    shell.commit(1, group="third")
    shell.coordinator.on_unloaded()
    assert shell.coordinator.deadline_ms() is None
    quota = shell.quota
    assert (quota.held_bytes, quota.offsets_bytes, quota.pending_count) == (0, 0, 0)


def test_an_append_that_comes_back_out_of_order_is_a_bug_that_is_seen() -> None:
    shell = Shell()
    shell.hold = True
    shell.commit(1)
    shell.commit(2)
    first, second = (append.append_id for append in shell.held)
    with pytest.raises(ValueError, match="before the older"):
        shell.coordinator.on_appended(second, shell.moment)
    shell.coordinator.on_appended(first, shell.moment)
    with pytest.raises(ValueError, match="not pending"):
        shell.coordinator.on_appended(first, shell.moment)


def test_a_hundred_thousand_pending_ids_do_not_keep_a_member_from_joining() -> None:
    serial = iter(range(1_000_000))
    config = GroupConfig(initial_rebalance_delay_ms=0, pending_members_max=1_000)
    quota = MemoryQuota(config)
    coordinator = GroupCoordinatorShard(config, make_id=lambda: str(next(serial)), quota=quota)
    coordinator.on_loaded(Moment(0, 0))
    request = JoinGroup(
        group_id="g",
        member_id="",
        protocol_type="consumer",
        protocols=offers("range"),
        session_timeout_ms=1_800_000,
    )
    for token in range(100_000):
        (effect,) = coordinator.join(token, request, Moment(0, 0))
    assert isinstance(effect, Reply)
    assert isinstance(effect.result, MemberIdRequired)
    last = JoinGroup(
        group_id="g",
        member_id=effect.result.member_id,
        protocol_type="consumer",
        protocols=offers("range"),
        session_timeout_ms=10_000,
    )
    (answer,) = coordinator.join("last", last, Moment(0, 0))
    assert isinstance(answer, Reply)
    assert answer.token == "last"
    member_id = effect.result.member_id
    assert isinstance(answer.result, JoinGroupResult), (
        "a member that joins at once with its id is added before the flood"
    )
    sync = SyncGroup(group_id="g", member_id=member_id, generation=1)
    (append,) = coordinator.sync("sync", sync, Moment(0, 0))
    assert isinstance(append, Append)
    coordinator.on_appended(append.append_id, Moment(0, 0))
    coordinator.on_deadline(Moment(9_999, 0))
    assert [each.member_id for each in coordinator.describe("g").members] == [member_id]
    coordinator.on_deadline(Moment(1_800_000, 0))
    assert coordinator.describe("g").members == ()


def test_a_group_without_members_is_removed_with_its_last_pending_id() -> None:
    shell = Shell()
    shell.join()
    assert [each.group_id for each in shell.coordinator.list_groups()] == ["g"]
    shell.advance(SESSION_MS)
    assert shell.coordinator.list_groups() == []
    assert shell.log == []


def test_groups_of_pending_ids_give_way_and_groups_with_members_or_offsets_do_not() -> None:
    shell = Shell(groups_max=3)
    (member,) = shell.stable(1, group="alive")
    shell.commit(1, group="committed")
    for number in range(50):
        shell.error(shell.join(group=f"pending{number}"), ErrorCode.MEMBER_ID_REQUIRED)
    assert shell.heartbeat(member, 1, group="alive") is ErrorCode.NONE
    assert len(shell.coordinator.list_groups()) == 3
    shell.commit(1, group="third")
    assert {each.group_id for each in shell.coordinator.list_groups()} == {
        "alive",
        "committed",
        "third",
    }
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    shell.error(shell.join(group="fourth"), full)
    shell.error(shell.commit(1, group="fourth"), full)
    assert shell.code(shell.commit(2, group="third")) is ErrorCode.NONE


def test_lists_and_descriptions_show_members_only_where_they_mean_something() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.commit(1, group="simple")
    listed = {each.group_id: each for each in shell.coordinator.list_groups()}
    assert (listed["g"].protocol_type, listed["g"].member_count) == ("consumer", 1)
    assert (listed["simple"].protocol_type, listed["simple"].state.value) == ("", "Empty")
    described = shell.coordinator.describe("g")
    assert described.members[0].assignment == member.encode()
    assert described.protocol == "range"
    shell.enter()
    described = shell.coordinator.describe("g")
    assert described.state.value == "PreparingRebalance"
    assert described.members[0].assignment == b""
    assert described.protocol == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_timeout_min_ms": 10, "session_timeout_max_ms": 9},
        {"session_timeout_min_ms": 0},
        {"initial_rebalance_delay_ms": -1},
        {"offset_metadata_bytes_max": 32_768},
        {"group_size_max": 0},
        {"offsets_retention_ms": 0},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"choose|must be"):
        GroupConfig(**wrong)


def test_a_commit_is_one_append_whatever_its_parts() -> None:
    coordinator = GroupCoordinatorShard(
        GroupConfig(), make_id=lambda: "id", quota=MemoryQuota(GroupConfig())
    )
    coordinator.on_loaded(Moment(0, 0))
    parts = tuple(OffsetToCommit("flights", each, 1) for each in range(5_000))
    effects = coordinator.commit("t", OffsetCommit(group_id="g", offsets=parts), Moment(0, 0))
    assert len(effects) == 1
    assert coordinator.pending_appends == 1
