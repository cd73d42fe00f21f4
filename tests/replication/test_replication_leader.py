"""What a leader asks of its timer, and tells producers and DeleteRecords."""

from __future__ import annotations

import pytest

from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.effects import AdvanceLowWatermark, LeaderEffect, ProposeIsr
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.isr import PartitionState
from millrace_server.replication.leader import BrokerState, PartitionLeader
from millrace_server.replication.messages import BrokerKey, FetchPosition
from tests.replication.replica_log import Entry, ReplicaLog

CONFIG = ReplicationConfig()
LAG_MS = CONFIG.replica_lag_ms_max


def _leader(
    replicas: tuple[int, ...],
    *,
    records: int = 1,
    high_watermark: int = 0,
    fenced: tuple[int, ...] = (),
    others: tuple[int, ...] = (),
) -> PartitionLeader:
    log = ReplicaLog(is_synced=True)
    for _ in range(records):
        log.append(Entry(0, "value"))
    log.begin_epoch(2)
    log.recover()
    return PartitionLeader(
        replicas[0],
        log,
        PartitionState(2, 1, replicas, replicas, 2),
        {number: BrokerState(1, number not in fenced) for number in (*replicas, *others)},
        CONFIG,
        high_watermark=high_watermark,
        now_ms=0,
    )


def _fetch(
    leader: PartitionLeader, broker_id: int, offset: int, now_ms: int, *, start: int = 0
) -> list[LeaderEffect]:
    end = leader.log.epochs.end_offset_for(0, log_end=leader.log.end_offset)
    assert end is not None
    last_epoch = -1 if offset == 0 else 0 if offset <= end.end_offset else 2
    position = FetchPosition(2, offset, last_epoch, start)
    return leader.on_fetch(BrokerKey(broker_id, 1), position, now_ms, session=1)[1]


def test_partition_whose_followers_have_everything_needs_no_timer() -> None:
    leader = _leader((1, 2, 3))
    assert leader.deadline_ms() == LAG_MS
    for broker_id in (2, 3):
        _fetch(leader, broker_id, 1, 100)
    assert leader.deadline_ms() is None
    assert leader.on_deadline(100 * LAG_MS) == []


def test_follower_of_an_idle_partition_lags_from_the_next_append_on() -> None:
    leader = _leader((1, 2))
    _fetch(leader, 2, 1, 100)
    assert isinstance(leader.log, ReplicaLog)
    leader.log.append(Entry(2, "value"))
    leader.on_appended(50 * LAG_MS)
    assert leader.deadline_ms() == 51 * LAG_MS
    assert leader.on_deadline(51 * LAG_MS - 1) == []
    assert leader.on_deadline(51 * LAG_MS) == [ProposeIsr(2, 1, (BrokerKey(1, 1),))]


def test_follower_that_is_always_a_little_behind_is_caught_up() -> None:
    leader = _leader((1, 2))
    log = leader.log
    assert isinstance(log, ReplicaLog)
    for now_ms in range(0, 5 * LAG_MS, 1_000):
        _fetch(leader, 2, log.end_offset - 1, now_ms)
        log.append(Entry(2, "value"))
        leader.on_appended(now_ms)
        assert leader.on_deadline(now_ms) == []


def test_records_are_deleted_when_no_replica_in_sync_has_them() -> None:
    leader = _leader((1, 2, 3), records=5)
    assert isinstance(leader.log, ReplicaLog)
    leader.log.advance_start(4)
    assert leader.low_watermark == -1
    assert leader.await_low_watermark(4, 0) == []
    assert leader.await_low_watermark(3, 0) == []
    _fetch(leader, 2, 5, 1, start=4)
    _fetch(leader, 3, 5, 1, start=2)
    assert leader.low_watermark == 2
    assert _fetch(leader, 3, 5, 2, start=3) == [AdvanceLowWatermark(3)]
    assert leader.await_low_watermark(4, 2) == []
    assert _fetch(leader, 3, 5, 3, start=4) == [AdvanceLowWatermark(4)]
    assert leader.low_watermark == 4
    assert _leader((1,)).low_watermark == 0


def test_a_deletion_waits_for_no_replica_that_has_left_the_isr() -> None:
    leader = _leader((1, 2, 3), records=5, fenced=(3,))
    assert isinstance(leader.log, ReplicaLog)
    _fetch(leader, 2, 5, 1)
    _fetch(leader, 3, 5, 1)
    leader.log.advance_start(4)
    _fetch(leader, 2, 5, 2, start=4)
    assert leader.await_low_watermark(4, 2) == []
    state = PartitionState(2, 2, (1, 2, 3), (1, 2), 2)
    assert AdvanceLowWatermark(4) in leader.on_image(state, 3)


def test_latest_offset_is_known_when_the_epochs_start_is_committed() -> None:
    leader = _leader((1, 2), records=3, high_watermark=1)
    assert not leader.is_high_watermark_known
    _fetch(leader, 2, 3, 1)
    assert leader.high_watermark == 3
    assert leader.is_high_watermark_known


def test_no_ack_waits_for_a_replica_that_is_added_until_it_has_caught_up() -> None:
    leader = _leader((1, 2), records=100, others=(3,))
    leader.on_image(PartitionState(2, 2, (1, 2, 3), (1, 2), 2), 10)
    _fetch(leader, 3, 0, 20)
    _fetch(leader, 2, 100, 20)
    assert leader.high_watermark == 100
    # It lacks what was appended since its last fetch, and nothing else: it is about to join.
    _fetch(leader, 3, 50, 30)
    assert isinstance(leader.log, ReplicaLog)
    leader.log.append(Entry(2, "value"))
    leader.on_appended(40)
    _fetch(leader, 3, 100, 50)
    _fetch(leader, 2, 101, 50)
    assert leader.high_watermark == 100
    leader.log.end_sync(leader.log.begin_sync())
    _fetch(leader, 3, 101, 60)
    assert leader.high_watermark == 101


def test_an_append_is_acked_only_while_the_isr_is_large_enough() -> None:
    leader = _leader((1, 2), records=3)
    assert leader.on_image(PartitionState(2, 2, (1, 2), (1,), 2), 1) == []
    assert leader.high_watermark == 0
    assert leader.on_image(PartitionState(2, 3, (1, 2), (1, 2), 2), 1) == []
    _fetch(leader, 2, 3, 1)
    assert leader.high_watermark == 3


def test_partition_with_fewer_replicas_than_it_should_have_in_sync_needs_all() -> None:
    leader = _leader((1,))
    leader.check_append()
    assert leader.on_acked(1) != []


def test_leader_does_not_begin_before_its_epoch_is_durable() -> None:
    log = ReplicaLog(is_synced=True)
    log.begin_epoch(2)
    with pytest.raises(ValueError, match="epoch 2 is not durable"):
        PartitionLeader(
            1, log, PartitionState(2, 1, (1,), (1,), 1), {}, CONFIG, high_watermark=0, now_ms=0
        )


def test_image_of_another_epoch_takes_another_leader() -> None:
    with pytest.raises(ValueError, match="epoch 3 is not 2"):
        _leader((1, 2)).on_image(PartitionState(3, 2, (1, 2), (1, 2), 1), 1)


def test_follower_does_not_begin_with_an_epoch_that_has_no_record() -> None:
    log = ReplicaLog(is_synced=True)
    log.begin_epoch(2)
    with pytest.raises(ValueError, match="epoch 2 has no record"):
        PartitionFollower(log, leader_epoch=3, high_watermark=0, allows_loss=False)


def test_times_leave_a_healthy_follower_in_the_isr() -> None:
    with pytest.raises(ValueError, match="replica_lag_ms_max is 500"):
        ReplicationConfig(replica_lag_ms_max=500)
