"""No principal uses up what all groups of a broker share; the others find room."""

from __future__ import annotations

from typing import Any

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.group.requests import LeavingMember
from millrace_server.principal_shares import ShareRule
from tests.server.group.shell import SESSION_MS, Shell, offers

ADA, BEN, ROOT = "User:ada", "User:ben", "User:root"
HALF = ShareRule(50, frozenset({ROOT}))
LARGE = offers("range", metadata=bytes(20_000))


def enter(shell: Shell, group: str, principal: str, **changes: Any) -> int:
    """The join of a static member."""
    return shell.join(group=group, principal=principal, instance_id="one", **changes)


def test_a_principal_has_a_share_of_the_groups_of_a_coordinator() -> None:
    shell = Shell(shares=HALF, groups_max=4)
    for group in ("a", "b"):
        assert shell.joined(enter(shell, group, ADA))
    refused = shell.error(enter(shell, "c", ADA), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert f"2 groups of {ADA}" in refused.message
    assert "principal_share_percent" in refused.message
    assert shell.code(shell.commit(1, group="c", principal=ADA)) is refused.code
    assert shell.joined(enter(shell, "c", BEN))
    assert shell.joined(enter(shell, "a", ADA)), "a group that is there is not refused"


def test_a_group_that_is_gone_gives_its_share_back() -> None:
    shell = Shell(shares=HALF, groups_max=4)
    shell.commit(1, group="a", principal=ADA)
    shell.commit(1, group="b", principal=ADA)
    shell.hold = True
    token = shell.delete_group("a")
    shell.fail_append()
    assert shell.code(token) is ErrorCode.DISK_FULL
    shell.hold = False
    shell.error(enter(shell, "c", ADA), ErrorCode.GROUP_MAX_SIZE_REACHED)
    shell.delete_group("a")
    assert shell.joined(enter(shell, "c", ADA))
    shell.error(enter(shell, "d", ADA), ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_a_principal_has_a_share_of_the_memory_whoever_joins_its_groups() -> None:
    shell = Shell(shares=HALF, memory_bytes=110_000)
    for group in ("a", "b"):
        assert shell.joined(enter(shell, group, ADA, protocols=LARGE))
    refused = shell.error(enter(shell, "c", ADA, protocols=LARGE), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert f"The groups of {ADA}" in refused.message
    token = shell.join(group="a", principal=BEN, instance_id="two", protocols=LARGE)
    shell.error(token, ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert shell.joined(enter(shell, "c", BEN, protocols=LARGE))
    shell.leave(LeavingMember("", "one"), group="b")
    assert shell.joined(enter(shell, "d", ADA, protocols=LARGE))


def test_a_principal_has_a_share_of_the_memory_for_offsets() -> None:
    shell = Shell(shares=HALF, offsets_bytes_max=4_000)
    codes = [
        shell.code(shell.commit(1, group="a", partition=number, principal=ADA))
        for number in range(7)
    ]
    assert codes == [ErrorCode.NONE] * 6 + [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    answer = shell.replies[shell.commit(1, group="b", principal=ADA)]
    assert "principal_share_percent" in str(answer)
    assert shell.code(shell.commit(2, group="a", principal=ADA)) is ErrorCode.NONE
    assert shell.code(shell.commit(1, group="c", principal=BEN)) is ErrorCode.NONE


def test_a_principal_drops_none_but_its_own_pending_ids() -> None:
    shell = Shell(shares=HALF, pending_members_max=4)
    kept = shell.member_id(shell.join(group="b", principal=BEN))
    first, *others = [shell.member_id(shell.join(group="a", principal=ADA)) for _ in range(3)]
    assert shell.quota.pending_count == 3
    shell.error(shell.join(first, group="a", principal=ADA), ErrorCode.UNKNOWN_MEMBER_ID)
    assert shell.joined(shell.join(kept, group="b", principal=BEN))
    for member_id in others:
        shell.join(member_id, group="a", principal=ADA)
    assert len(shell.coordinator.describe("a").members) == 2


def test_a_principal_with_pending_ids_in_many_groups_leaves_groups_to_others() -> None:
    shell = Shell(shares=HALF, groups_max=4)
    for number in range(10):
        shell.member_id(shell.join(group=f"g{number}", principal=ADA))
    assert len(shell.coordinator.list_groups()) == 2
    assert shell.joined(enter(shell, "b", BEN))


def test_after_a_restart_a_group_belongs_to_the_first_that_uses_it() -> None:
    shell = Shell(shares=HALF, groups_max=4)
    for group in ("a", "b"):
        shell.commit(1, group=group, principal=ADA)
    shell.restart()
    for group in ("a", "b"):
        shell.commit(2, group=group, principal=BEN)
    shell.error(enter(shell, "c", BEN), ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert shell.joined(enter(shell, "c", ADA))


@pytest.mark.parametrize("principal", [ADA, ROOT, None])
def test_without_a_share_one_principal_may_use_the_whole_bound(principal: str | None) -> None:
    rule = ShareRule() if principal == ADA else HALF
    shell = Shell(shares=rule, groups_max=4)
    for number in range(4):
        token = shell.join(group=f"g{number}", principal=principal, instance_id="one")
        assert shell.joined(token)
    token = shell.join(group="more", principal=principal, instance_id="one")
    assert "its limit" in shell.error(token, ErrorCode.GROUP_MAX_SIZE_REACHED).message


def test_everything_given_back_leaves_no_share_behind() -> None:
    shell = Shell(shares=HALF, groups_max=4)
    shell.commit(1, group="a", principal=ADA)
    shell.join(group="b", principal=ADA)
    enter(shell, "a", ADA)
    shell.leave(LeavingMember("", "one"), group="a")
    shell.advance(2 * SESSION_MS)
    shell.delete_group("a")
    quota = shell.quota
    assert (quota.held_bytes, quota.offsets_bytes, quota.pending_count) == (0, 0, 0)
    assert quota.owner_of("a") is None
    for group in ("c", "d"):
        assert shell.joined(enter(shell, group, ADA))
