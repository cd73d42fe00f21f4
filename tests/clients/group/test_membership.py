"""The membership core: its requests, their times, and bad responses."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pytest

from millrace._group.effects import (
    Assign,
    Effect,
    Emit,
    Fail,
    Heartbeat,
    Join,
    Leave,
    RefreshMetadata,
    Revoke,
    Sync,
)
from millrace._group.member_identity import MemberConfig
from millrace._group.member_states import TRANSITIONS, IllegalStep, Lifecycle, MemberState, Step
from millrace._group.membership import LEAVE_WAIT_MS, Membership
from millrace._group.poll_deadline import PollAlert, PollDeadline
from millrace.assignors import (
    BUILT_IN,
    Assignor,
    Placement,
    RebalanceProtocol,
    Subscription,
    decode_assigned,
    encode_assigned,
)
from millrace.errors import (
    AssignorFailed,
    ConnectionLost,
    InconsistentProtocol,
    ProtocolViolation,
    RebalanceInProgress,
)
from millrace.events import EventKind
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import decode_sticky_user_data
from millrace_protocol.messages.group_membership import (
    JoinedMember,
    JoinGroupResponse,
    SyncGroupResponse,
)

E = TypeVar("E")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def member(*assignors: Assignor, session_timeout_ms: int = 45_000) -> Membership:
    terms = MemberConfig("g", assignors or (BUILT_IN["range"],), session_timeout_ms, 300_000, 3_000)
    return Membership(terms, rng=random.Random(1))


def only(effects: list[Effect], kind: type[E]) -> E:
    """The only effect apart from events."""
    (effect,) = [each for each in effects if not isinstance(each, Emit)]
    assert isinstance(effect, kind)
    return effect


def joined(
    generation: int = 1,
    *,
    protocol: str = "range",
    leader: str = "me",
    members: tuple[JoinedMember, ...] | None = None,
) -> JoinGroupResponse:
    if members is None:
        members = (JoinedMember("me", None, Subscription(("t",)).encode()),)
    return JoinGroupResponse(generation, "consumer", protocol, leader, "me", False, members)


def synced(*partitions: TopicPartition) -> SyncGroupResponse:
    return SyncGroupResponse("consumer", "range", encode_assigned(partitions))


def led(membership: Membership, **answer: Any) -> list[Effect]:
    """Joins, is made the leader, and learns that topic t has two partitions."""
    join = only(membership.subscribe(frozenset({"t"}), 0), Join)
    learn = only(membership.on_joined(join, joined(**answer), 0), RefreshMetadata)
    return membership.on_refreshed(learn, {"t": 2}, 0)


def stable(membership: Membership, *partitions: TopicPartition, now_ms: int = 0) -> None:
    sync = only(led(membership), Sync)
    assign = only(membership.on_synced(sync, synced(*partitions), now_ms), Assign)
    membership.on_handed_over(assign, now_ms)
    assert membership.state is MemberState.STABLE


def test_a_step_that_a_state_does_not_know_is_refused() -> None:
    with pytest.raises(IllegalStep, match="unjoined cannot take the step SETTLE"):
        Lifecycle().take(Step.SETTLE)
    assert not any(state is MemberState.FAILED for state, _ in TRANSITIONS)
    assert set(TRANSITIONS.values()) == set(MemberState)


def test_heartbeats_go_out_on_time_and_one_at_a_time() -> None:
    m = member()
    stable(m, T0)
    assert m.deadline_ms() == 3_000
    assert m.on_deadline(2_999) == []
    beat = only(m.on_deadline(3_000), Heartbeat)
    assert m.on_deadline(6_000) == []
    m.on_heard(beat, 6_100)
    assert (m.last_heartbeat_ms, m.deadline_ms()) == (6_100, 9_100)


def test_a_stall_of_the_loop_is_told_with_its_length() -> None:
    m = member()
    stable(m, T0)
    event, beat = m.on_deadline(3_000 + 7_500)
    assert isinstance(event, Emit) and event.kind is EventKind.LOOP_STALLED
    assert "blocked for 7500 ms" in event.sentence and "45000 ms" in event.sentence
    assert isinstance(beat, Heartbeat)


def test_silence_of_the_group_for_a_session_is_told_once() -> None:
    m = member(session_timeout_ms=10_000)
    stable(m, T0)
    now_ms, events = 0, []
    while now_ms < 30_000:
        due_ms = m.deadline_ms()
        assert due_ms is not None
        now_ms = due_ms
        for beat in m.on_deadline(now_ms):
            assert isinstance(beat, Heartbeat)
            events += [(now_ms, each) for each in m.on_failed(beat, ConnectionLost("cut"), now_ms)]
    ((when_ms, told),) = events
    assert isinstance(told, Emit) and told.kind is EventKind.COORDINATOR_LOST
    assert 10_000 <= when_ms < 11_000
    # It holds on: whether it was forgotten only the group can say.
    assert m.state is MemberState.STABLE and m.held == {T0}


def test_a_late_answer_to_an_earlier_join_is_dropped() -> None:
    m = member()
    join = only(m.subscribe(frozenset({"t"}), 0), Join)
    assert m.on_failed(join, ConnectionLost("cut"), 0) == []
    due_ms = m.deadline_ms()
    assert due_ms is not None and 0 < due_ms <= 50
    again = only(m.on_deadline(due_ms), Join)
    assert m.on_joined(join, joined(), due_ms) == []
    assert isinstance(only(m.on_joined(again, joined(), due_ms), RefreshMetadata), RefreshMetadata)


def test_sticky_reports_its_last_assignment_after_revoking_it() -> None:
    m = member(BUILT_IN["sticky"])
    sync = only(led(m, protocol="sticky"), Sync)
    assign = only(m.on_synced(sync, synced(T0, T1), 0), Assign)
    m.on_handed_over(assign, 0)
    revoke, *_ = [e for e in m.subscribe(frozenset({"t", "u"}), 0) if not isinstance(e, Emit)]
    join = only(m.on_handed_over(revoke, 0), Join)  # type: ignore[arg-type]
    subscription = Subscription.decode(join.request.protocols[0].metadata)
    assert subscription.owned == () and subscription.user_data is not None
    told = decode_sticky_user_data(subscription.user_data)
    assert (told.generation, told.assigned[0].partitions) == (1, (0, 1))


class Own:
    """An assignor that a user wrote, badly."""

    name = "own"
    protocols = (RebalanceProtocol.EAGER,)

    def __init__(self, placement: Placement | Exception) -> None:
        self.placement = placement

    def user_data(
        self, topics: Sequence[str], *, assigned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return None

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Placement:
        if isinstance(self.placement, Exception):
            raise self.placement
        return self.placement


@pytest.mark.parametrize(
    ("placement", "named"),
    [
        ({"me": [T0, T1], "you": [T1]}, "t-1 to 'me' and to 'you'"),
        ({"me": [T0, T0]}, "t-0 to 'me' and to 'me'"),
        ({"me": [TopicPartition("u", 0)]}, "does not subscribe"),
        ({"me": [TopicPartition("t", 2)]}, "no such partition"),
        ({"they": [T0]}, "no member"),
        (ZeroDivisionError("oh"), "raised ZeroDivisionError"),
    ],
)
def test_a_users_assignor_is_checked_and_the_others_do_not_wait(placement: Any, named: str) -> None:
    m = member(Own(placement))
    metadata = Subscription(("t",)).encode()
    members = (JoinedMember("me", None, metadata), JoinedMember("you", None, metadata))
    goodbye, fail = led(m, protocol="own", members=members)
    assert isinstance(goodbye, Leave) and isinstance(fail, Fail)
    assert isinstance(fail.error, AssignorFailed) and named in str(fail.error)
    assert m.state is MemberState.FAILED and m.error is fail.error
    assert m.deadline_ms() is None


def test_a_users_assignor_that_is_right_is_used() -> None:
    m = member(Own({"me": [T1]}))
    sync = only(led(m, protocol="own"), Sync)
    (given,) = sync.request.assignments
    assert (given.member_id, decode_assigned(given.assignment)) == ("me", (T1,))


def test_answers_that_cannot_be_are_errors() -> None:
    m = member()
    join = only(m.subscribe(frozenset({"t"}), 0), Join)
    *_, fail = m.on_joined(join, joined(protocol="other"), 0)
    assert isinstance(fail, Fail) and isinstance(fail.error, InconsistentProtocol)
    m = member()
    join = only(m.subscribe(frozenset({"t"}), 0), Join)
    *_, fail = m.on_joined(join, joined(members=(JoinedMember("you", None, b"?"),)), 0)
    assert isinstance(fail, Fail) and isinstance(fail.error, AssignorFailed)
    m = member()
    sync = only(led(m), Sync)
    *_, fail = m.on_synced(sync, SyncGroupResponse("consumer", "range", b"??"), 0)
    assert isinstance(fail, Fail) and isinstance(fail.error, ProtocolViolation)


def test_a_member_that_leaves_before_it_has_its_id_waits_for_it_and_leaves_with_it() -> None:
    m = member()
    join = only(m.subscribe(frozenset({"t"}), 0), Join)
    assert m.leave("enough", 0) == []
    goodbye = only(m.on_joined(join, joined(-1), 0), Leave)
    assert goodbye.request.members[0].member_id == "me"


def rebalancing() -> tuple[Membership, Join]:
    """A cooperative member that holds t-0, and joins the next generation."""
    m = member(BUILT_IN["cooperative-sticky"])
    sync = only(led(m, protocol="cooperative-sticky"), Sync)
    m.on_handed_over(only(m.on_synced(sync, synced(T0), 0), Assign), 0)
    join = only(m.subscribe(frozenset({"t", "u"}), 0), Join)
    assert m.held == {T0}
    return m, join


def test_a_member_that_leaves_in_a_rebalance_commits_when_its_generation_is_complete() -> None:
    m, join = rebalancing()
    assert m.leave("closed", 1_000) == []
    learn = only(
        m.on_joined(join, joined(2, protocol="cooperative-sticky"), 1_000), RefreshMetadata
    )
    sync = only(m.on_refreshed(learn, {"t": 2, "u": 0}, 1_000), Sync)
    # The group takes commits now: t-1, which is assigned too, is not taken over.
    revoke = only(m.on_synced(sync, synced(T0, T1), 1_000), Revoke)
    assert (revoke.partitions, m.identity.generation) == (frozenset({T0}), 2)
    only(m.on_handed_over(revoke, 1_000), Leave)


def test_a_member_that_leaves_does_not_wait_for_others_for_long() -> None:
    m, join = rebalancing()
    assert m.leave("closed", 1_000) == []
    assert m.deadline_ms() == 1_000 + LEAVE_WAIT_MS
    assert m.on_deadline(1_000 + LEAVE_WAIT_MS - 1) == []
    revoke = only(m.on_deadline(1_000 + LEAVE_WAIT_MS), Revoke)
    assert m.on_joined(join, joined(2, protocol="cooperative-sticky"), 5_000) == []
    only(m.on_handed_over(revoke, 5_000), Leave)


def test_a_member_that_leaves_does_not_join_again() -> None:
    m, join = rebalancing()
    m.leave("closed", 1_000)
    only(m.on_failed(join, RebalanceInProgress("others joined"), 1_100), Revoke)
    m, join = rebalancing()
    m.leave("closed", 1_000)
    assert m.on_failed(join, ConnectionLost("gone"), 1_100) == []
    revoke = only(m.on_deadline(1_000 + LEAVE_WAIT_MS - 1), Revoke)
    only(m.on_handed_over(revoke, 1_200), Leave)


def test_a_member_that_changes_its_mind_stays() -> None:
    m, join = rebalancing()
    m.leave("closed", 1_000)
    m.subscribe(frozenset({"t", "u"}), 1_001)
    assert m.on_deadline(1_000 + LEAVE_WAIT_MS) == []
    learn = only(
        m.on_joined(join, joined(2, protocol="cooperative-sticky"), 5_000), RefreshMetadata
    )
    sync = only(m.on_refreshed(learn, {"t": 2, "u": 0}, 5_000), Sync)
    m.on_handed_over(only(m.on_synced(sync, synced(T0), 5_000), Assign), 5_000)
    assert (m.state, m.held) == (MemberState.STABLE, frozenset({T0}))


def test_the_users_time_runs_while_it_has_records_and_begins_anew_with_each() -> None:
    p = PollDeadline(1_000)
    assert (p.deadline_ms(), p.left_ms(5)) == (None, None)
    p.on_handed((1, 9), 0)
    assert p.deadline_ms() == 500
    # Another record was taken meanwhile, without a call.
    assert p.on_deadline((1, 8), 500) is None
    assert p.deadline_ms() == 1_000
    assert p.on_deadline((1, 8), 1_000) is PollAlert.SLOW
    assert p.left_ms(1_000) == 500
    assert p.on_deadline((1, 8), 1_500) is PollAlert.OVERDUE
    assert (p.is_overdue, p.deadline_ms(), p.left_ms(1_600)) == (True, None, -100)
    p.extend(2_000, 1_600)
    assert (p.is_overdue, p.left_ms(1_600)) == (False, 2_000)
    p.on_asked()
    assert (p.busy_ms(1_700), p.deadline_ms()) == (None, None)
