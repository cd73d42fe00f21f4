"""Committed offsets: commits, deletions, when they are seen, and expiry."""

from __future__ import annotations

from typing import Any

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.image import OFFSET_BYTES
from millrace_server.group.records import CommittedOffset
from millrace_server.group.requests import (
    DeleteGroupResult,
    LeavingMember,
    OffsetsResult,
    OffsetToCommit,
    TopicPartition,
)
from tests.server.group.shell import WALL_MS, Shell, offers, reads

HOUR_MS = 3_600_000
RETENTION_MS = 7 * 24 * HOUR_MS


def keep_alive(shell: Shell, member_id: str, generation: int, *, hours: int) -> None:
    """Time passes, in which the member heartbeats."""
    for _ in range(hours):
        shell.advance(HOUR_MS)
        assert shell.heartbeat(member_id, generation) is ErrorCode.NONE


def test_a_commit_is_answered_and_seen_when_it_is_durable() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.hold = True
    token = shell.commit(42, member_id=member, generation=1, metadata="by hand")
    assert shell.waits(token)
    assert shell.committed() == -1
    shell.make_durable()
    assert shell.code(token) is ErrorCode.NONE
    (found,) = shell.coordinator.fetch_offsets("g")
    assert found.committed == CommittedOffset(42, -1, "by hand", WALL_MS + shell.now_ms)


def test_a_stable_read_is_refused_while_a_commit_is_being_written() -> None:
    shell = Shell()
    shell.commit(1)
    shell.hold = True
    shell.commit(2)
    asked = [TopicPartition("flights", 0), TopicPartition("flights", 1)]
    first, second = shell.coordinator.fetch_offsets("g", asked, require_stable=True)
    assert first.error is not None
    assert first.error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert (second.committed, second.error) == (None, None)
    shell.make_durable()
    first, _ = shell.coordinator.fetch_offsets("g", asked, require_stable=True)
    assert first.committed is not None
    assert first.committed.offset == 2


def test_a_commit_that_cannot_be_written_is_refused_and_not_seen() -> None:
    shell = Shell()
    shell.hold = True
    token = shell.commit(42)
    shell.fail_append(ErrorCode.MESSAGE_TOO_LARGE)
    shell.error(token, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    assert shell.committed() == -1
    assert shell.coordinator.list_groups() == [], "a group that never came to be leaves no trace"


def test_an_older_commit_may_be_made_and_counts() -> None:
    shell = Shell()
    shell.commit(42)
    shell.commit(7)
    assert shell.committed() == 7


def test_the_members_of_an_older_generation_cannot_commit() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    token = shell.commit(5, member_id=follower, generation=1)
    assert leader in shell.error(token, ErrorCode.ILLEGAL_GENERATION).message
    assert shell.code(shell.commit(5, member_id="c-9", generation=2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.committed() == -1


def test_a_commit_for_a_group_that_does_not_exist_is_one_of_an_older_generation() -> None:
    shell = Shell()
    token = shell.commit(5, member_id="m", generation=3)
    shell.error(token, ErrorCode.ILLEGAL_GENERATION)
    assert shell.coordinator.list_groups() == []


def test_what_was_read_before_a_rebalance_can_be_committed_until_it_completes() -> None:
    shell = Shell()
    leader, follower = shell.stable(2)
    shell.join(leader)
    assert shell.state() == "PreparingRebalance"
    assert shell.code(shell.commit(5, member_id=follower, generation=2)) is ErrorCode.NONE
    shell.join(follower)
    assert shell.state() == "CompletingRebalance"
    late = shell.commit(6, member_id=follower, generation=2)
    shell.error(late, ErrorCode.ILLEGAL_GENERATION)
    early = shell.commit(7, member_id=follower, generation=3)
    shell.error(early, ErrorCode.REBALANCE_IN_PROGRESS)
    assert shell.committed() == 5


def test_committing_is_a_sign_of_life() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    for offset in range(5):
        shell.advance(9_999)
        assert shell.code(shell.commit(offset, member_id=member, generation=1)) is ErrorCode.NONE


def test_only_members_commit_while_a_group_has_members() -> None:
    shell = Shell()
    assert shell.code(shell.commit(1)) is ErrorCode.NONE
    (member,) = shell.stable(1)
    error = shell.error(shell.commit(2), ErrorCode.UNKNOWN_MEMBER_ID)
    assert "1 members" in error.message
    shell.leave(LeavingMember(member))
    assert shell.code(shell.commit(3)) is ErrorCode.NONE
    assert shell.committed() == 3


def test_parts_of_a_commit_that_are_refused_do_not_hold_up_the_others() -> None:
    shell = Shell(offset_metadata_bytes_max=4)
    token = shell.commit_all(
        [
            OffsetToCommit("flights", 0, 10),
            OffsetToCommit("flights", 1, 10, metadata="12345"),
            OffsetToCommit("flights", 2, 10, metadata="1234"),
            OffsetToCommit("flights", 3, 10, metadata="ééé"),
            OffsetToCommit("flights", 4, -1),
            OffsetToCommit("x" * 250, 0, 10),
            OffsetToCommit("flights", -1, 10),
        ]
    )
    outcomes = shell.result(token, OffsetsResult).partitions
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert [each.error.code if each.error else None for each in outcomes] == [
        None,
        too_large,
        None,
        too_large,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert {each.partition for each in shell.coordinator.fetch_offsets("g")} == {0, 2}


def test_offsets_are_bounded_and_those_there_are_can_still_move() -> None:
    shell = Shell(offsets_bytes_max=2 * OFFSET_BYTES + 10)
    shell.commit_all([OffsetToCommit("flights", each, 1) for each in range(2)])
    assert shell.code(shell.commit(9, partition=2)) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert shell.code(shell.commit(9, partition=1)) is ErrorCode.NONE
    assert shell.committed(partition=1) == 9


def test_the_texts_beside_offsets_are_bounded_with_them() -> None:
    shell = Shell(offsets_bytes_max=2 * OFFSET_BYTES)
    token = shell.commit_all([OffsetToCommit("flights", 0, 1, -1, "x" * OFFSET_BYTES)])
    assert shell.code(token) is ErrorCode.NONE
    assert shell.code(shell.commit(2, partition=1)) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert shell.code(shell.commit(2, partition=0)) is ErrorCode.NONE
    assert shell.code(shell.commit(2, partition=1)) is ErrorCode.NONE


def test_a_simple_groups_offsets_expire_a_retention_after_each_was_committed() -> None:
    shell = Shell()
    shell.commit(1, partition=0)
    shell.advance(HOUR_MS)
    shell.commit(2, partition=1)
    shell.advance(RETENTION_MS - 2 * HOUR_MS)
    assert shell.committed(partition=0) == 1
    shell.advance(HOUR_MS)
    assert (shell.committed(partition=0), shell.committed(partition=1)) == (-1, 2)
    shell.advance(HOUR_MS)
    assert shell.coordinator.list_groups() == []
    assert not list(shell.image_of_log().names())


def test_the_offsets_of_an_empty_group_expire_a_retention_after_it_became_empty() -> None:
    shell = Shell(session_timeout_max_ms=2 * HOUR_MS)
    (member,) = shell.stable(1, session_timeout_ms=2 * HOUR_MS)
    shell.commit(1, member_id=member, generation=1)
    keep_alive(shell, member, 1, hours=RETENTION_MS // HOUR_MS)
    shell.leave(LeavingMember(member))
    shell.advance(RETENTION_MS - HOUR_MS)
    assert shell.committed() == 1
    shell.advance(2 * HOUR_MS)
    assert shell.committed() == -1
    assert shell.coordinator.list_groups() == []


def test_a_commit_to_an_empty_group_counts_from_the_commit() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.commit(1, member_id=member, generation=1)
    shell.leave(LeavingMember(member))
    shell.advance(RETENTION_MS - HOUR_MS)
    shell.commit(2, partition=1)
    shell.advance(2 * HOUR_MS)
    assert (shell.committed(partition=0), shell.committed(partition=1)) == (-1, 2)


def test_the_offsets_of_a_living_group_never_expire() -> None:
    shell = Shell(session_timeout_max_ms=2 * HOUR_MS)
    (member,) = shell.stable(1, session_timeout_ms=2 * HOUR_MS)
    shell.commit(1, member_id=member, generation=1)
    keep_alive(shell, member, 1, hours=RETENTION_MS // HOUR_MS + 48)
    assert shell.committed() == 1


@pytest.mark.parametrize("phase", ["PreparingRebalance", "CompletingRebalance"])
def test_offsets_do_not_expire_in_the_middle_of_a_rebalance(phase: str) -> None:
    """KAFKA-13636"""
    shell = Shell(session_timeout_max_ms=2 * RETENTION_MS)
    changes: dict[str, Any] = {
        "session_timeout_ms": 2 * RETENTION_MS,
        "rebalance_timeout_ms": 2 * RETENTION_MS,
    }
    leader, follower = shell.stable(2, **changes)
    shell.commit(1, member_id=leader, generation=2)
    shell.commit(1, member_id=leader, generation=2, topic="ports")
    shell.join(leader, **changes)
    if phase == "CompletingRebalance":
        shell.join(follower, **changes)
    assert shell.state() == phase
    shell.advance(RETENTION_MS + HOUR_MS)
    assert shell.state() == phase
    assert (shell.committed(), shell.committed(topic="ports")) == (1, 1)


def test_a_living_groups_offsets_of_topics_that_it_reads_no_more_expire() -> None:
    shell = Shell(session_timeout_max_ms=2 * HOUR_MS)
    (member,) = shell.stable(1, session_timeout_ms=2 * HOUR_MS)
    shell.commit(1, member_id=member, generation=1, topic="ports")
    shell.commit(1, member_id=member, generation=1)
    keep_alive(shell, member, 1, hours=RETENTION_MS // HOUR_MS + 1)
    assert (shell.committed(), shell.committed(topic="ports")) == (1, -1)


def test_nothing_expires_while_it_is_not_known_what_a_living_group_reads() -> None:
    shell = Shell(session_timeout_max_ms=2 * HOUR_MS)
    opaque = offers("range", metadata=b"opaque")
    (member,) = shell.stable(1, session_timeout_ms=2 * HOUR_MS, protocols=opaque)
    shell.commit(1, member_id=member, generation=1, topic="ports")
    keep_alive(shell, member, 1, hours=RETENTION_MS // HOUR_MS + 1)
    assert shell.committed(topic="ports") == 1


def test_an_offset_that_is_being_committed_does_not_expire() -> None:
    shell = Shell()
    shell.commit(1)
    shell.advance(RETENTION_MS - 60_000)
    shell.hold = True
    shell.commit(2)
    shell.advance(HOUR_MS)
    shell.hold = False
    shell.make_durable()
    assert shell.committed() == 2
    assert shell.image_of_log().of_group("g")["flights"][0].offset == 2


def test_expiry_looks_through_many_groups_in_slices() -> None:
    shell = Shell(expiry_slice=10)
    for number in range(45):
        shell.commit(1, group=f"g{number}")
    shell.now_ms += RETENTION_MS + HOUR_MS
    calls = 0
    while shell.coordinator.list_groups():
        due_ms = shell.coordinator.deadline_ms()
        assert due_ms is not None
        assert due_ms <= shell.now_ms
        before = len(shell.coordinator.list_groups())
        shell.run(shell.coordinator.on_deadline(shell.moment))
        assert before - len(shell.coordinator.list_groups()) <= 10
        calls += 1
    assert calls >= 5


def test_a_deleted_topic_takes_its_offsets_with_it_in_every_group() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.commit(1, member_id=member, generation=1)
    shell.commit(1, member_id=member, generation=1, topic="ports")
    shell.commit(1, group="other")
    shell.hold = True
    shell.commit(2, group="other", partition=1)
    shell.run(shell.coordinator.on_topic_deleted("flights", shell.moment))
    shell.make_durable()
    assert shell.committed() == -1
    assert shell.committed(topic="ports") == 1
    assert shell.coordinator.fetch_offsets("other") == []
    assert shell.image_of_log() == shell.coordinator.image


def test_an_offset_is_deleted_unless_a_member_reads_the_topic() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    for topic in ("flights", "ports"):
        shell.commit(1, member_id=member, generation=1, topic=topic)
    flights, ports = TopicPartition("flights", 0), TopicPartition("ports", 0)
    outcomes = shell.result(shell.delete_offsets(flights, ports), OffsetsResult).partitions
    assert outcomes[0].error is not None
    assert outcomes[0].error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert outcomes[1].error is None
    assert (shell.committed(), shell.committed(topic="ports")) == (1, -1)
    shell.leave(LeavingMember(member))
    assert shell.code(shell.delete_offsets(flights)) is ErrorCode.NONE
    assert shell.committed() == -1


def test_offsets_of_a_living_group_of_an_unknown_type_cannot_be_deleted() -> None:
    shell = Shell()
    shell.stable(1, protocol_type="connect")
    token = shell.delete_offsets(TopicPartition("flights", 0))
    shell.error(token, ErrorCode.NON_EMPTY_GROUP)


def test_deleting_an_offset_that_is_not_there_is_done_at_once() -> None:
    shell = Shell()
    shell.commit(1)
    written = len(shell.log)
    assert shell.code(shell.delete_offsets(TopicPartition("ports", 0))) is ErrorCode.NONE
    assert len(shell.log) == written
    token = shell.delete_offsets(TopicPartition("ports", 0), group="other")
    shell.error(token, ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_group_is_deleted_with_its_offsets_only_when_it_is_empty() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.commit(1, member_id=member, generation=1)
    assert "1 members" in shell.error(shell.delete_group(), ErrorCode.NON_EMPTY_GROUP).message
    shell.leave(LeavingMember(member))
    assert shell.result(shell.delete_group(), DeleteGroupResult) == DeleteGroupResult("g")
    assert shell.committed() == -1
    assert not list(shell.image_of_log().names())
    shell.error(shell.delete_group(), ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(ApiError) as refused:
        shell.coordinator.describe("g")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_commit_in_flight_does_not_outlive_the_deletion_of_its_group() -> None:
    shell = Shell()
    shell.hold = True
    committing = shell.commit(1)
    deleting = shell.delete_group()
    shell.make_durable()
    assert shell.code(committing) is ErrorCode.NONE
    shell.result(deleting, DeleteGroupResult)
    assert shell.coordinator.fetch_offsets("g") == []
    assert not list(shell.image_of_log().names())


def test_requests_of_a_group_that_is_being_deleted_are_to_be_retried() -> None:
    shell = Shell()
    shell.commit(1)
    shell.hold = True
    deleting = shell.delete_group()
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.error(shell.join(), unavailable)
    shell.error(shell.commit(2), unavailable)
    assert shell.heartbeat("m", 1) is unavailable
    assert shell.coordinator.list_groups() == []
    shell.make_durable()
    shell.result(deleting, DeleteGroupResult)
    assert shell.joined(shell.enter()[1]).generation == 1


def test_a_group_whose_deletion_cannot_be_written_is_as_it_was() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.commit(1, member_id=member, generation=1)
    shell.leave(LeavingMember(member))
    shell.hold = True
    deleting = shell.delete_group()
    shell.fail_append(ErrorCode.DISK_FULL)
    shell.error(deleting, ErrorCode.DISK_FULL)
    assert (shell.state(), shell.generation(), shell.committed()) == ("Empty", 2, 1)


def test_a_deletion_that_takes_several_appends_is_answered_after_the_last() -> None:
    shell = Shell()
    shell.commit_all([OffsetToCommit("flights", each, 1) for each in range(1_500)])
    shell.hold = True
    deleting = shell.delete_group()
    assert [len(append.records) for append in shell.held] == [1_000, 501]
    shell.make_durable(1)
    assert shell.waits(deleting)
    shell.make_durable()
    shell.result(deleting, DeleteGroupResult)
    assert not list(shell.image_of_log().names())


def test_a_deletion_of_which_a_part_fails_is_refused_and_the_rest_is_still_known() -> None:
    shell = Shell()
    shell.commit_all([OffsetToCommit("flights", each, 1) for each in range(1_500)])
    shell.hold = True
    deleting = shell.delete_group()
    shell.fail_append(ErrorCode.DISK_FULL)
    shell.make_durable()
    shell.error(deleting, ErrorCode.DISK_FULL)
    assert len(shell.coordinator.fetch_offsets("g")) == 1_000
    shell.hold = False
    shell.result(shell.delete_group(), DeleteGroupResult)
    assert not list(shell.image_of_log().names())


def test_a_group_that_was_emptied_and_has_no_offsets_is_forgotten() -> None:
    shell = Shell()
    (member,) = shell.stable(1)
    shell.leave(LeavingMember(member))
    shell.advance(HOUR_MS)
    assert shell.coordinator.list_groups() == []
    assert not list(shell.image_of_log().names())


def test_subscriptions_are_read_whatever_their_version() -> None:
    shell = Shell()
    newer = b"\x00\x63" + reads("flights")[2:] + b"more"
    (member,) = shell.stable(1, protocols=offers("range", metadata=newer))
    shell.commit(1, member_id=member, generation=1)
    token = shell.delete_offsets(TopicPartition("flights", 0))
    assert shell.code(token) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert shell.code(shell.delete_offsets(TopicPartition("ports", 0))) is ErrorCode.NONE
