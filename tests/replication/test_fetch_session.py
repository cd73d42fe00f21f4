"""Both sides of a connection, without a connection: what is named, told, and left alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.effects import Append
from millrace_server.replication.fetch_schedule import FetchSchedule
from millrace_server.replication.fetch_session import FetchSession, SessionRefused
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.isr import PartitionState
from millrace_server.replication.leader import BrokerState, PartitionLeader
from millrace_server.replication.messages import (
    BrokerKey,
    FetchRequest,
    FetchResult,
    PartitionKey,
    Records,
    Refused,
)
from millrace_server.token_bucket import TokenBucket
from tests.replication.replica_log import Entry, ReplicaLog

LEADER, FOLLOWER = 1, 2
CONFIG = ReplicationConfig()
Results = list[tuple[PartitionKey, FetchResult]]


class Pair:
    """A leader's and a follower's broker, and the partitions that they share."""

    def __init__(
        self,
        count: int,
        *,
        config: ReplicationConfig = CONFIG,
        isr: tuple[int, ...] = (LEADER, FOLLOWER),
        throttle: TokenBucket | None = None,
    ) -> None:
        self.now_ms = 0
        self.keys = [PartitionKey(uuid.UUID(int=1), number) for number in range(count)]
        self.leaders: dict[PartitionKey, PartitionLeader | ErrorCode] = {}
        self.leader_logs: dict[PartitionKey, ReplicaLog] = {}
        self.follower_logs: dict[PartitionKey, ReplicaLog] = {}
        self.finds = 0
        self.session = FetchSession(1, self._find, config, throttle)
        self.schedule = FetchSchedule(BrokerKey(FOLLOWER, 1), config)
        brokers = {number: BrokerState(1, True) for number in (LEADER, FOLLOWER)}
        state = PartitionState(0, 1, (LEADER, FOLLOWER), isr, 1)
        for key in self.keys:
            log = self.leader_logs[key] = ReplicaLog(is_synced=False)
            self.leaders[key] = PartitionLeader(
                LEADER, log, state, brokers, config, high_watermark=0, now_ms=0
            )
            own = self.follower_logs[key] = ReplicaLog(is_synced=False)
            self.schedule.add(
                key, PartitionFollower(own, leader_epoch=0, high_watermark=0, allows_loss=False)
            )

    def _find(self, key: PartitionKey) -> PartitionLeader | ErrorCode:
        self.finds += 1
        return self.leaders[key]

    def leader(self, key: PartitionKey) -> PartitionLeader:
        leader = self.leaders[key]
        assert isinstance(leader, PartitionLeader)
        return leader

    def append(self, key: PartitionKey) -> None:
        self.leader_logs[key].append(Entry(0, "value"))
        self.leader(key).on_appended(self.now_ms)
        self.session.on_appended(key)

    def ask(self) -> FetchRequest | None:
        """Sends the follower's next request to the session."""
        request = self.schedule.next_request(self.now_ms)
        if request is not None:
            self._moved(self.session.on_request(request, self.now_ms))
        return request

    def response(self, *, room: int = 1000) -> Results:
        """What the session responds to the oldest request; `room` partitions with records."""
        results: Results = []
        while (found := self.session.next_result(self.now_ms)) is not None:
            key, result = found
            log = self.leader_logs[key]
            if isinstance(result.outcome, Records) and result.outcome.offset < log.end_offset:
                if room == 0:
                    self.session.put_back(key)
                    break
                room -= 1
                offset = result.outcome.offset
                outcome = Records(offset, log.read(offset, 100))
                self.session.on_sent(key, 100, self.now_ms)
                results.append(
                    (key, FetchResult(outcome, result.high_watermark, result.log_start_offset))
                )
            else:
                results.append((key, result))
        self._moved(self.session.end_response(self.now_ms))
        return results

    def take(self, results: Results, *, is_durable: bool = True) -> None:
        """The follower takes a response over, and its appends are durable at once."""
        for key, effect in self.schedule.on_response(results, self.now_ms):
            if isinstance(effect, Append):
                assert isinstance(effect.records.data, tuple)
                for entry in effect.records.data:
                    self.follower_logs[key].append(entry)
                if is_durable:
                    self.schedule.followers[key].on_acked()
            self.schedule.on_changed(key)

    def exchange(self, *, room: int = 1000) -> Results:
        """One request and its response."""
        assert self.ask() is not None
        results = self.response(room=room)
        self.take(results)
        return results

    def settle(self) -> None:
        """Until the follower has all, and knows it."""
        while self.exchange():
            self.now_ms += 100

    def _moved(self, effects: Sequence[tuple[PartitionKey, object]]) -> None:
        for key, _ in effects:
            self.session.on_offsets_moved(key, self.now_ms)


def _keys(results: Results) -> list[PartitionKey]:
    return [key for key, _ in results]


def test_idle_partition_costs_a_fetch_nothing() -> None:
    pair = Pair(3_000)
    pair.settle()
    pair.finds = 0
    request = pair.ask()
    assert request is not None and request.positions == ()
    assert not pair.session.is_due(pair.now_ms)
    pair.now_ms += CONFIG.fetch_wait_ms
    assert pair.session.is_due(pair.now_ms)
    assert pair.response() == []
    assert pair.finds == 0


def test_fetch_looks_at_no_other_partition_than_that_with_records() -> None:
    pair = Pair(3_000)
    pair.settle()
    pair.ask()
    pair.finds = 0
    pair.append(pair.keys[1_234])
    assert pair.session.is_due(pair.now_ms)
    results = pair.response()
    assert _keys(results) == [pair.keys[1_234]]
    assert pair.finds == 1
    pair.take(results)
    request = pair.ask()
    assert request is not None
    assert [key for key, _ in request.positions] == [pair.keys[1_234]]


def test_request_names_a_bounded_number_of_partitions() -> None:
    pair = Pair(10, config=ReplicationConfig(named_partitions_max=4))
    named = []
    for _ in range(3):
        request = pair.ask()
        assert request is not None
        named.append(len(request.positions))
        pair.take(pair.response())
    assert named == [4, 4, 2]


def test_records_are_sent_once_until_the_follower_has_them_durably() -> None:
    pair = Pair(2)
    pair.settle()
    key = pair.keys[0]
    pair.append(key)
    pair.ask()
    pair.take(pair.response(), is_durable=False)
    pair.append(key)
    pair.now_ms += CONFIG.request_wait_ms
    request = pair.ask()
    assert request is not None and request.positions == ()
    assert not pair.session.is_due(pair.now_ms)
    pair.schedule.followers[key].on_acked()
    pair.schedule.on_changed(key)
    request = pair.ask()
    assert request is not None and [found for found, _ in request.positions] == [key]
    assert pair.session.is_due(pair.now_ms)
    assert pair.response() == []
    assert _keys(pair.response()) == [key]


def test_fetch_without_names_waits_for_what_becomes_durable() -> None:
    pair = Pair(2)
    pair.settle()
    pair.append(pair.keys[0])
    pair.ask()
    pair.take(pair.response(), is_durable=False)
    assert pair.schedule.next_request(pair.now_ms) is None
    assert pair.schedule.deadline_ms() == pair.now_ms + CONFIG.request_wait_ms


def test_no_third_fetch_is_sent_before_a_response() -> None:
    pair = Pair(1)
    pair.settle()
    pair.append(pair.keys[0])
    assert pair.ask() is not None
    follower = PartitionFollower(
        pair.follower_logs[pair.keys[0]], leader_epoch=1, high_watermark=0, allows_loss=False
    )
    pair.schedule.add(pair.keys[0], follower)
    assert pair.ask() is not None
    follower = PartitionFollower(
        pair.follower_logs[pair.keys[0]], leader_epoch=2, high_watermark=0, allows_loss=False
    )
    pair.schedule.add(pair.keys[0], follower)
    assert pair.ask() is None


def test_no_fetch_overtakes_the_first_of_a_connection() -> None:
    pair = Pair(2)
    second = pair.keys[1]
    follower = pair.schedule.followers[second]
    pair.schedule.remove(second)
    first = pair.schedule.next_request(pair.now_ms)
    assert first is not None and first.is_first
    pair.schedule.add(second, follower)
    assert pair.schedule.next_request(pair.now_ms) is None
    pair.schedule.on_response([], pair.now_ms)
    then = pair.schedule.next_request(pair.now_ms)
    assert then is not None and not then.is_first
    assert [key for key, _ in then.positions] == [second]


def test_a_connection_begins_with_a_fetch_that_says_so() -> None:
    pair = Pair(1)
    first = pair.schedule.next_request(pair.now_ms)
    assert first is not None
    with pytest.raises(SessionRefused, match="the first fetch of a connection"):
        pair.session.on_request(replace(first, is_first=False), pair.now_ms)
    pair.session.on_request(first, pair.now_ms)
    assert len(pair.session) == 1


def test_response_to_an_older_name_does_not_count() -> None:
    pair = Pair(1)
    key = pair.keys[0]
    pair.settle()
    pair.append(key)
    pair.ask()
    old = pair.response()
    # The same position, named again by the follower of a newer epoch.
    pair.schedule.remove(key)
    follower = PartitionFollower(
        pair.follower_logs[key], leader_epoch=0, high_watermark=0, allows_loss=False
    )
    pair.schedule.add(key, follower)
    assert pair.ask() is not None
    pair.take(old)
    assert pair.follower_logs[key].end_offset == 0
    pair.take(pair.response())
    assert pair.follower_logs[key].end_offset == 1


def test_every_partition_gets_its_turn_in_small_responses() -> None:
    pair = Pair(5)
    pair.settle()
    for key in pair.keys:
        pair.append(key)
    served = []
    for _ in range(5):
        results = pair.exchange(room=1)
        served += [key for key, result in results if result.outcome != Records(1)]
        pair.append(served[-1])
    assert sorted(served) == pair.keys


def test_high_watermark_alone_waits_for_company() -> None:
    pair = Pair(2)
    pair.settle()
    pair.append(pair.keys[0])
    pair.exchange()
    assert pair.ask() is not None
    assert pair.leader(pair.keys[0]).high_watermark == 1
    assert not pair.session.is_due(pair.now_ms)
    assert pair.session.deadline_ms() == pair.now_ms + CONFIG.high_watermark_wait_ms
    pair.now_ms += CONFIG.high_watermark_wait_ms
    assert pair.session.is_due(pair.now_ms)
    pair.take(pair.response())
    assert pair.schedule.followers[pair.keys[0]].high_watermark == 1


def test_partition_that_is_refused_is_asked_for_later() -> None:
    pair = Pair(2)
    pair.settle()
    key = pair.keys[0]
    pair.leaders[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    pair.ask()
    pair.session.on_leader_changed(key)
    results = pair.response()
    assert results == [(key, FetchResult(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)))]
    pair.take(results)
    request = pair.ask()
    assert request is not None and request.positions == ()
    pair.take(pair.response())
    pair.now_ms += CONFIG.backoff_ms
    request = pair.ask()
    assert request is not None and [found for found, _ in request.positions] == [key]


def test_partition_that_fails_here_is_asked_for_later_and_holds_up_no_other() -> None:
    pair = Pair(2)
    pair.settle()
    for key in pair.keys:
        pair.append(key)
    pair.ask()
    for key, _ in pair.schedule.on_response(pair.response(), pair.now_ms):
        pair.schedule.on_failed(key, pair.now_ms)
    assert pair.ask() is None
    assert pair.schedule.deadline_ms() == pair.now_ms + CONFIG.backoff_ms
    pair.now_ms += CONFIG.backoff_ms
    request = pair.ask()
    assert request is not None and len(request.positions) == 2


def test_partition_that_moves_away_is_forgotten() -> None:
    pair = Pair(2)
    pair.settle()
    pair.schedule.remove(pair.keys[0])
    request = pair.ask()
    assert request is not None and request.forgotten == (pair.keys[0],)
    assert pair.keys[0] not in pair.session
    pair.append(pair.keys[0])
    assert not pair.session.is_due(pair.now_ms)


def test_new_connection_names_everything_anew() -> None:
    pair = Pair(3)
    pair.settle()
    pair.ask()
    pair.schedule.on_disconnected()
    request = pair.schedule.next_request(pair.now_ms)
    assert request is not None and request.is_first and len(request.positions) == 3


def test_session_keeps_its_bounds() -> None:
    pair = Pair(3, config=ReplicationConfig(session_partitions_max=2))
    request = pair.schedule.next_request(0)
    assert request is not None
    with pytest.raises(SessionRefused, match="3 partitions; at most 2"):
        pair.session.on_request(request, 0)
    pair = Pair(1)
    request = pair.ask()
    assert request is not None
    pair.session.on_request(request, 0)
    with pytest.raises(SessionRefused, match="more than 2"):
        pair.session.on_request(request, 0)
    wide = FetchSession(1, pair._find, ReplicationConfig(named_partitions_max=0))
    with pytest.raises(SessionRefused, match="names 1 partitions"):
        wide.on_request(request, 0)


def test_throttle_holds_back_a_follower_that_is_not_in_sync() -> None:
    pair = Pair(2, isr=(LEADER,), throttle=TokenBucket(50, now_ms=0))
    for key in pair.keys:
        pair.append(key)
    results = pair.exchange()
    assert _keys(results) == [pair.keys[0]]
    assert pair.leader(pair.keys[0]).is_in_sync(FOLLOWER) is False
    # Its records bring it into the ISR: the throttle holds for the other partition alone.
    pair.ask()
    assert pair.leader(pair.keys[0]).is_in_sync(FOLLOWER)
    pair.append(pair.keys[1])
    assert not pair.session.is_due(pair.now_ms)
    pair.append(pair.keys[0])
    assert pair.session.is_due(pair.now_ms)
    assert _keys(pair.response()) == [pair.keys[0]]


def test_throttled_follower_goes_on_when_there_are_bytes_again() -> None:
    pair = Pair(2, isr=(LEADER,), throttle=TokenBucket(50, now_ms=0))
    for key in pair.keys:
        pair.append(key)
    results = pair.exchange()
    while pair.keys[1] not in _keys(results):
        pair.ask()
        due_ms = pair.session.deadline_ms()
        assert due_ms is not None and due_ms > pair.now_ms
        pair.now_ms = due_ms
        results = pair.response()
        pair.take(results)
    assert 1_000 < pair.now_ms < 1_100


def test_token_bucket_needs_a_rate() -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        TokenBucket(0, now_ms=0)
