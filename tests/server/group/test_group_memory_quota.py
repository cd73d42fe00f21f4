"""All groups of a broker together take no more memory than they may."""

from __future__ import annotations

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.group.coordinator import GroupCoordinatorShard
from millrace_server.group.group import GROUP_BYTES, MEMBER_BYTES
from millrace_server.group.requests import LeavingMember
from tests.server.group.shell import SESSION_MS, Shell, offers

METADATA_BYTES = 20_000
LARGE = offers("range", metadata=bytes(METADATA_BYTES))


def filled(**config: int) -> Shell:
    """A broker whose groups, of one static member each, take all the room there is."""
    shell = Shell(memory_bytes=210_000, **config)
    for number in range(8):
        token = shell.join(group=f"g{number}", instance_id="one", protocols=LARGE)
        assert shell.joined(token).generation == 1
    return shell


def test_a_join_of_a_further_group_is_refused_when_the_quota_is_used_up() -> None:
    shell = filled()
    held = shell.quota.held_bytes
    token = shell.join(group="g8", instance_id="one", protocols=LARGE)
    message = shell.error(token, ErrorCode.GROUP_MAX_SIZE_REACHED).message
    assert "210000" in message
    assert shell.quota.held_bytes == held, "a group without a member is removed"


def test_members_may_rejoin_but_not_with_more_metadata() -> None:
    shell = filled()
    member_id = shell.coordinator.describe("g3").members[0].member_id
    assert shell.joined(shell.join(group="g3", instance_id="one", protocols=LARGE))
    more = offers("range", metadata=bytes(2 * METADATA_BYTES))
    shell.error(
        shell.join(group="g3", instance_id="one", protocols=more),
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    )
    assert shell.coordinator.describe("g3").members[0].member_id != member_id


def test_an_assignment_above_the_quota_is_refused() -> None:
    shell = filled()
    member_id = shell.coordinator.describe("g0").members[0].member_id
    token = shell.sync(member_id, 1, {member_id: bytes(METADATA_BYTES)}, group="g0")
    assert "no room" in shell.error(token, ErrorCode.UNKNOWN_SERVER_ERROR).message


@pytest.mark.parametrize("how", ["leave", "session timeout", "unload"])
def test_groups_give_back_what_they_used_of_the_quota(how: str) -> None:
    shell = filled()
    if how == "leave":
        shell.leave(LeavingMember("", "one"), group="g2")
    elif how == "session timeout":
        shell.advance(2 * SESSION_MS)
    else:
        shell.coordinator.on_unloaded()
        assert shell.quota.held_bytes == 0
        return
    token = shell.join(group="g8", instance_id="one", protocols=LARGE)
    assert shell.joined(token).generation == 1


def test_the_coordinators_of_a_broker_share_one_quota() -> None:
    shell = filled()
    shell.coordinator = GroupCoordinatorShard(shell.config, make_id=lambda: "id", quota=shell.quota)
    shell.coordinator.on_loaded(shell.moment)
    token = shell.join(group="g8", instance_id="one", protocols=LARGE)
    shell.error(token, ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_a_load_uses_as_much_of_the_quota_as_before() -> None:
    shell = filled()
    for number in range(8):
        member_id = shell.coordinator.describe(f"g{number}").members[0].member_id
        shell.sync(member_id, 1, {member_id: b"all"}, group=f"g{number}")
    held = shell.quota.held_bytes
    names_bytes = len("range") + 2 * len("c") + 2 * len("one")
    assert held == 8 * (GROUP_BYTES + MEMBER_BYTES + names_bytes + METADATA_BYTES + len("all"))
    shell.restart()
    assert shell.quota.held_bytes == held
