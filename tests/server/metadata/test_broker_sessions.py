"""Heartbeats and sessions: brokers are unfenced, fenced, and told that they may stop."""

from __future__ import annotations

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.metadata.broker_sessions import BrokerSessions, Heartbeat, HeartbeatAnswer
from millrace_server.metadata.image import ClusterImage
from tests.server.metadata.clusters import (
    after,
    cluster,
    inactive,
    partition,
    seen,
    with_topic,
)

TIMEOUT_MS = 100


class Controller:
    """The order in which an active controller calls the sessions."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.sessions = BrokerSessions(timeout_ms=TIMEOUT_MS)
        self.sessions.take_over(image, 0)

    def beat(
        self,
        broker_id: int,
        now_ms: int = 0,
        *,
        applied: int | None = None,
        wants_shutdown: bool = False,
    ) -> HeartbeatAnswer:
        heartbeat = Heartbeat(
            broker_id,
            self.image.brokers[broker_id].epoch,
            self.image.end_offset if applied is None else applied,
            wants_shutdown,
        )
        self.sessions.contact(self.image, heartbeat, now_ms)
        records: list[MetadataRecord]
        records = self.sessions.heartbeat_records(self.image, {}, heartbeat)
        self.image = after(self.image, records)
        return self.sessions.heartbeat_answer(self.image, heartbeat)


def test_a_broker_is_unfenced_when_it_has_read_its_own_registration() -> None:
    controller = Controller(inactive(cluster(1, 2), 2))
    epoch = controller.image.brokers[2].epoch
    behind = controller.beat(2, applied=epoch)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    level = controller.beat(2, applied=epoch + 1)
    assert (level.is_caught_up, level.is_fenced) == (True, False)


def test_a_session_is_over_when_the_timeout_has_passed() -> None:
    controller = Controller(cluster(1, 2))
    sessions = controller.sessions
    controller.beat(1, 40)
    controller.beat(2, 30)
    assert (sessions.deadline_ms(), sessions.overdue(129)) == (130, [])
    assert sessions.is_alive(2, 129)
    assert not sessions.is_alive(2, 130)
    assert sessions.overdue(130) == [2]
    assert sessions.overdue(140) == [2, 1], "the longest silent first"
    assert sessions.silent(since_ms=29) == []
    assert sessions.silent(since_ms=30) == [2]
    assert sessions.silent(since_ms=40) == [1, 2]
    sessions.end(2)
    assert (sessions.deadline_ms(), sessions.overdue(130)) == (140, [])
    sessions.end(1)
    assert sessions.deadline_ms() is None


def test_a_new_controller_gives_every_broker_a_whole_session() -> None:
    sessions = BrokerSessions(timeout_ms=TIMEOUT_MS)
    sessions.take_over(inactive(cluster(1, 2, 3), 3), 1_000)
    assert sessions.overdue(1_099) == []
    assert sessions.overdue(1_100) == [1, 2]


def test_a_process_that_was_replaced_does_not_keep_the_session_alive() -> None:
    controller = Controller(cluster(1))
    stale = Heartbeat(1, controller.image.brokers[1].epoch - 1, 99)
    with pytest.raises(ApiError) as refused:
        controller.sessions.contact(controller.image, stale, 50)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert controller.sessions.deadline_ms() == TIMEOUT_MS


def test_a_broker_stops_when_its_leaders_have_moved_and_all_others_know() -> None:
    controller = Controller(with_topic(cluster(1, 2, 3), partition((1, 2), (1, 2))))
    before = controller.image.end_offset
    assert not controller.beat(1, wants_shutdown=True).should_shut_down
    assert seen(controller.image) == (2, (2,), ())
    moved = controller.image.end_offset
    controller.beat(2, applied=moved)
    controller.beat(3, applied=before)
    assert not controller.beat(1, wants_shutdown=True).should_shut_down
    controller.beat(3, applied=moved)
    answer = controller.beat(1, wants_shutdown=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert controller.beat(1, wants_shutdown=True).should_shut_down, "the answer may be lost"


def test_a_broker_that_leads_nothing_stops_at_once() -> None:
    controller = Controller(with_topic(cluster(1, 2), partition((2, 1), (2, 1))))
    assert controller.beat(1, wants_shutdown=True).should_shut_down
    assert seen(controller.image) == (2, (2,), ())


def test_the_last_broker_stops_though_its_partitions_have_no_leader_then() -> None:
    controller = Controller(with_topic(cluster(1), partition((1,), (1,))))
    controller.beat(1, wants_shutdown=True)
    assert controller.beat(1, wants_shutdown=True).should_shut_down
    assert seen(controller.image) == (-1, (1,), ())


def test_a_new_controller_waits_for_all_to_know_of_a_shutdown_that_it_did_not_begin() -> None:
    image = inactive(with_topic(cluster(1, 2), partition((2, 1), (2,))), 1, stopping=True)
    controller = Controller(image)
    assert not controller.beat(1, wants_shutdown=True).should_shut_down
    controller.beat(2)
    assert controller.beat(1, wants_shutdown=True).should_shut_down


def test_a_paused_broker_comes_back_under_its_registration() -> None:
    controller = Controller(inactive(with_topic(cluster(1, 2), partition((1, 2), (1, 2))), 1))
    assert not controller.beat(1).is_fenced
