"""A position under a new leader: the consumer finds where the logs part, and never later."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.fetch_plan import Plan
from millrace._consumer.offset_validation import on_validated, on_validation_failed
from millrace._consumer.partition_state import PartitionState
from millrace._consumer.positions import Positions
from millrace._consumer.read_epochs import ReadEpochs
from millrace.config import ConsumerConfig
from millrace.errors import ConnectionLost, LogTruncated, UnsupportedVersion
from millrace.records import TopicPartition
from millrace_protocol.messages.fetch import FetchPartitionResult
from millrace_protocol.messages.leader_epochs import EpochEndResult
from millrace_protocol.records import assign, encode_batch
from millrace_server.log.epochs import NO_EPOCH, EpochTable

WHERE = TopicPartition("t", 0)
END = 100


def records(*epochs: int, first: int = 0) -> bytes:
    """One batch for each record, of the leader epochs that are given."""
    batches = b""
    for offset, epoch in enumerate(epochs, first):
        batch = encode_batch([b"v"], timestamps_ms=1)
        assign(batch, base_offset=offset, leader_epoch=epoch)
        batches += batch
    return batches


def table(epochs: list[int]) -> EpochTable:
    found = EpochTable()
    for offset, epoch in enumerate(epochs):
        found = found.begin(epoch, offset)
    return found


epochs = st.lists(st.integers(0, 6), max_size=8).map(sorted)


@given(shared=epochs, read=epochs, led=epochs, start=st.integers(0, 16))
def test_a_consumer_goes_back_to_where_the_logs_part_and_no_further(
    shared: list[int], read: list[int], led: list[int], start: int
) -> None:
    """W-4.37.2, as a follower finds it. No two leaders have an epoch in common, so behind the part
    that both logs share, one has even epochs and the other odd ones."""
    last = 2 * max(shared, default=0)
    own = [2 * epoch for epoch in shared] + [last + 2 * epoch + 1 for epoch in read]
    leader = [2 * epoch for epoch in shared] + [last + 2 * epoch + 2 for epoch in led]
    start = min(start, len(own))
    known = ReadEpochs()
    known.note(records(*own[start:], first=start), from_offset=start, leader_epoch=99)
    position = len(own)
    while (epoch := known.before(position)) != NO_EPOCH:
        end = table(leader).end_offset_for(epoch, log_end=len(leader))
        parting = known.parting(*(end or (epoch, 0)))
        if parting >= position:
            break
        position = parting
        known.truncate_to(position)
    assert position <= len(own)
    assert own[start:position] == leader[start:position]
    is_shared = position == max(start, min(len(shared), len(own)))
    assert is_shared or position == len(own) or position <= start


def test_epochs_that_are_consumed_are_forgotten_but_for_the_last() -> None:
    known = ReadEpochs()
    known.note(records(1, 2, 3, 3), from_offset=0, leader_epoch=3)
    known.trim_to(3)
    assert [known.before(offset) for offset in (1, 2, 3, 4)] == [-1, -1, 3, 3]


class Rig:
    """A consumer of one partition whose leader changes."""

    def __init__(self, policy: str = "error") -> None:
        config = ConsumerConfig(on_out_of_range=policy)  # type: ignore[arg-type]
        self.positions = Positions(config, rng=random.Random(1), counters=ConsumerCounters())
        self.positions.assign([WHERE], None)
        self.positions.seek(self.state, 0)
        self.now_ms = 0
        self.epoch = 1

    @property
    def state(self) -> PartitionState:
        return self.positions[WHERE]

    def plan(self) -> Plan:
        self.now_ms += 60_000
        return self.positions.plan(self.now_ms, lambda *_: (0, self.epoch))

    def fetch(self, batches: bytes) -> None:
        """The next request is a fetch, and it finds these batches."""
        (fetch,) = self.plan().fetches
        result = FetchPartitionResult(*WHERE, 0, None, END, 0, -1, batches)
        self.positions.on_fetched(fetch, (result,), self.now_ms)

    def consume(self) -> None:
        while (taken := self.positions.take(self.now_ms)) is not None:
            self.state.position = taken[1].next_offset

    def validate(self, epoch: int, end_offset: int) -> int:
        """The next request asks for an epoch, which is returned; the leader answers."""
        plan = self.plan()
        assert not plan.fetches
        (validation,) = plan.validations
        (asked,) = validation.request.partitions
        assert asked.current_leader_epoch == self.epoch
        result = EpochEndResult(*WHERE, 0, None, epoch, end_offset)
        on_validated(self.positions, validation, (result,), self.now_ms)
        return asked.leader_epoch


def test_a_new_leader_is_asked_once_before_it_is_fetched_from() -> None:
    rig = Rig()
    rig.fetch(records(1, 1))
    rig.consume()
    assert not rig.plan().validations, "the leader is the same"
    rig = Rig()
    rig.fetch(records(1, 1))
    rig.consume()
    rig.epoch = 2
    assert rig.validate(1, 2) == 1
    rig.fetch(records(2, first=2))
    assert rig.state.fetch_offset == 3


def test_an_unknown_epoch_of_the_leader_is_not_taken_for_the_old_one() -> None:
    """The broker opens its partitions after a restart, and its metadata names no leader yet."""
    rig = Rig()
    rig.fetch(records(1, 1))
    rig.consume()
    rig.epoch = NO_EPOCH
    (fetch,) = rig.plan().fetches
    assert [each.leader_epoch for each in fetch.request.partitions] == [1]


def test_epochs_of_a_leader_that_tells_none_are_noted_from_its_batches() -> None:
    rig = Rig()
    rig.epoch = NO_EPOCH
    rig.fetch(records(1, 1))
    rig.fetch(records(1, 2, first=2))
    rig.consume()
    rig.epoch = 2
    assert rig.validate(2, 4) == 2
    assert rig.plan().fetches


def committed(epoch: int, offset: int) -> Rig:
    """A consumer that begins where its group has committed, under a leader of epoch 4."""
    rig = Rig()
    rig.positions.seek(rig.state, offset)
    rig.state.epochs = ReadEpochs.committed(epoch, offset)
    rig.epoch = 4
    return rig


@pytest.mark.parametrize(("epoch", "end_offset"), [(3, 10), (3, 12)])
def test_a_committed_offset_that_the_log_has_is_read_from(epoch: int, end_offset: int) -> None:
    rig = committed(3, 10)
    assert rig.validate(epoch, end_offset) == 3
    rig.fetch(records(4, first=10))
    assert rig.state.fetch_offset == 11


@pytest.mark.parametrize(("epoch", "end_offset", "parting"), [(3, 8, 8), (2, 9, 9), (2, 12, 9)])
def test_records_that_the_group_has_processed_and_that_are_gone_are_told(
    epoch: int, end_offset: int, parting: int
) -> None:
    rig = committed(3, 10)
    rig.validate(epoch, end_offset)
    assert isinstance(rig.state.error, LogTruncated)
    assert (rig.state.error.offset, rig.state.error.truncated_to) == (10, parting)


@pytest.mark.parametrize(("epoch", "offset"), [(NO_EPOCH, 10), (3, 0)])
def test_a_commit_that_tells_no_epoch_is_not_validated(epoch: int, offset: int) -> None:
    assert committed(epoch, offset).plan().fetches


@pytest.mark.parametrize(("epoch", "end_offset", "parting"), [(1, 1, 1), (0, 2, 0), (1, 0, 0)])
def test_a_truncation_is_an_error_with_both_offsets(
    epoch: int, end_offset: int, parting: int
) -> None:
    rig = Rig()
    rig.fetch(records(1, 1, 1))
    rig.consume()
    rig.epoch = 3
    rig.validate(epoch, end_offset)
    with pytest.raises(LogTruncated) as raised:
        rig.positions.take(rig.now_ms)
    assert (raised.value.offset, raised.value.truncated_to) == (3, parting)
    rig.validate(epoch, end_offset)
    assert rig.positions.is_ready, "the position stays until a seek"
    rig.positions.seek(rig.state, parting)
    rig.fetch(records(3, first=parting))


def test_with_a_reset_policy_the_consumer_goes_on_where_the_logs_part() -> None:
    rig = Rig("latest")
    rig.fetch(records(1, 1, 1))
    rig.consume()
    rig.epoch = 3
    rig.validate(1, 1)
    assert rig.state.position == rig.state.fetch_offset == 1
    (reset,) = rig.positions.resets
    assert (reset.where, reset.offset) == (WHERE, 3)
    assert rig.validate(1, 1) == 1, "what was read before is asked for as well"
    rig.fetch(records(3, first=1))


def test_what_was_read_ahead_is_handed_out_before_a_truncation_is_told() -> None:
    rig = Rig()
    rig.fetch(records(1, 1, 1))
    rig.epoch = 3
    rig.validate(1, 1)
    taken = rig.positions.take(rig.now_ms)
    assert taken is not None and taken[1].next_offset == 3
    rig.state.position = 3
    rig.validate(1, 1)
    with pytest.raises(LogTruncated):
        rig.positions.take(rig.now_ms)


def test_a_position_of_a_seek_is_not_doubted() -> None:
    rig = Rig()
    rig.fetch(records(1, 1, 1))
    rig.positions.seek(rig.state, 2)
    rig.epoch = 3
    assert not rig.plan().validations


def test_a_broker_that_does_not_know_the_question_is_read_as_it_is() -> None:
    rig = Rig()
    rig.fetch(records(1, 1))
    rig.consume()
    rig.epoch = 2
    for error in (ConnectionLost("lost"), UnsupportedVersion("no such api")):
        (validation,) = rig.plan().validations
        on_validation_failed(rig.positions, validation, error, rig.now_ms)
    rig.fetch(records(2, first=2))
    assert rig.state.fetch_offset == 3
