"""Fetch sessions: what a response leaves out, and how many sessions there may be."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace import Admin
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApiKey
from millrace_protocol.kafka.fetch import (
    FINAL_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from millrace_protocol.kafka.metadata import NO_ID
from millrace_server.dialects.kafka.fetch_sessions import (
    EPOCH_MAX,
    UNUSED_MS_MIN,
    FetchSessions,
    SessionRefused,
)
from millrace_server.testing import Broker
from tests.broker.wire import batch, values_of
from tests.kafka.kafka_wire import KafkaWire, connect_kafka, produce, topic_id

SESSION_NOT_FOUND, INVALID_EPOCH, TOPIC_ID_ERROR, UNKNOWN_TOPIC_ID = 70, 71, 106, 100
NOBODY = uuid.UUID(int=7)


def topic(offsets: dict[int, int], name: str = "t", topic_id: uuid.UUID = NO_ID) -> FetchTopic:
    """The partitions of a topic, each with the offset to read from."""
    partitions = (
        FetchPartition(number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in offsets.items()
    )
    return FetchTopic(name, topic_id, tuple(partitions))


def fetch(session: int, epoch: int, *topics: FetchTopic, **options: Any) -> FetchRequest:
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **options}
    return FetchRequest(session_id=session, session_epoch=epoch, topics=topics, **settings)


def told(response: Any) -> dict[int, list[bytes | None]]:
    """The partitions of a response with their values."""
    return {
        each.partition_index: values_of(each)
        for found in response.responses
        for each in found.partitions
    }


# Over a connection


@pytest.mark.parametrize("version", range(7, 19))
async def test_a_response_holds_only_what_is_new(wire: KafkaWire, version: int) -> None:
    known = await topic_id(wire)
    first = await wire.call(fetch(0, 0, topic({0: 0, 1: 0}, topic_id=known)), version)
    session = first.session_id
    assert session > 0
    assert told(first) == {0: [], 1: []}
    idle = await wire.call(fetch(session, 1), version)
    assert (idle.session_id, told(idle)) == (session, {})
    await wire.call(produce(batch(b"a"), partition=1), 9)
    assert told(await wire.call(fetch(session, 2), version)) == {1: [b"a"]}
    # The partition is read from the same offset until the client names another one.
    assert told(await wire.call(fetch(session, 3), version)) == {1: [b"a"]}
    read = topic({1: 1}, topic_id=known)
    assert told(await wire.call(fetch(session, 4, read), version)) == {}


async def test_a_session_waits_for_records_and_survives_its_connection(
    broker: Broker, wire: KafkaWire
) -> None:
    session = (await wire.call(fetch(0, 0, topic({0: 0, 1: 0})), 12)).session_id
    async with connect_kafka(broker.port) as other:
        await other.send(fetch(session, 1, max_wait_ms=60_000), 12)
        await wire.call(produce(batch(b"a"), partition=1), 9)
        answer = await other.response(KAFKA_APIS[KafkaApiKey.FETCH], 12)
        assert told(answer) == {1: [b"a"]}


async def test_partitions_join_leave_and_end_a_session(wire: KafkaWire) -> None:
    for number in range(2):
        await wire.call(produce(batch(b"%d" % number), partition=number), 9)
    opened = await wire.call(fetch(0, 0, topic({0: 0})), 12)
    session = opened.session_id
    assert told(opened) == {0: [b"0"]}
    both = await wire.call(fetch(session, 1, topic({1: 0})), 12)
    assert told(both) == {0: [b"0"], 1: [b"1"]}
    without = fetch(session, 2, forgotten_topics_data=(ForgottenTopic("t", NO_ID, (0,)),))
    assert told(await wire.call(without, 12)) == {1: [b"1"]}
    empty = fetch(session, 3, forgotten_topics_data=(ForgottenTopic("t", NO_ID, (1,)),))
    assert (await wire.call(empty, 12)).session_id == 0
    assert (await wire.call(fetch(session, 4), 12)).error_code == SESSION_NOT_FOUND


async def test_what_does_not_fit_a_session_is_refused(wire: KafkaWire) -> None:
    session = (await wire.call(fetch(0, 0, topic({0: 0})), 12)).session_id
    assert (await wire.call(fetch(session, 9), 12)).error_code == INVALID_EPOCH
    assert (await wire.call(fetch(session, 1), 13)).error_code == TOPIC_ID_ERROR
    assert (await wire.call(fetch(session + 1, 1), 12)).error_code == SESSION_NOT_FOUND
    ended = await wire.call(fetch(session, FINAL_EPOCH, topic({0: 0})), 12)
    assert (ended.error_code, ended.session_id, told(ended)) == (0, 0, {0: []})
    assert (await wire.call(fetch(session, 1), 12)).error_code == SESSION_NOT_FOUND
    again = await wire.call(fetch(0, 0, topic({0: 0})), 12)
    replaced = await wire.call(fetch(again.session_id, 0, topic({1: 0})), 12)
    assert replaced.session_id not in (0, again.session_id)
    assert (await wire.call(fetch(again.session_id, 1), 12)).error_code == SESSION_NOT_FOUND


async def test_an_error_is_told_in_every_response(broker: Broker, wire: KafkaWire) -> None:
    known = await topic_id(wire)
    unknown = topic({0: 0}, topic_id=NOBODY)
    opened = await wire.call(fetch(0, 0, topic({0: 9}, topic_id=known), unknown), 13)

    def codes(response: Any) -> list[int]:
        return [each.error_code for found in response.responses for each in found.partitions]

    assert codes(opened) == [1, UNKNOWN_TOPIC_ID]
    again = await wire.call(fetch(opened.session_id, 1), 13)
    assert codes(again) == [1, UNKNOWN_TOPIC_ID]
    # Nothing has to be read again when the partition is well.
    well = await wire.call(fetch(opened.session_id, 2, topic({0: 0}, topic_id=known)), 13)
    assert codes(well) == [0, UNKNOWN_TOPIC_ID]
    async with Admin(broker.servers) as admin:
        await admin.delete_topic("t")
    gone = await wire.call(fetch(opened.session_id, 3), 13)
    assert codes(gone) == [UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID]


async def test_each_partition_has_its_turn_where_responses_are_full(wire: KafkaWire) -> None:
    for number in range(2):
        for _ in range(3):
            await wire.call(produce(batch(b"%d" % number), partition=number), 9)
    size = len(batch(b"0"))
    opened = await wire.call(fetch(0, 0, topic({0: 0, 1: 0}), max_bytes=size), 12)
    assert told(opened) == {0: [b"0"], 1: []}
    following = fetch(opened.session_id, 1, topic({0: 1}), max_bytes=size)
    assert told(await wire.call(following, 12)) == {1: [b"1"]}
    following = fetch(opened.session_id, 2, topic({1: 1}), max_bytes=size)
    assert told(await wire.call(following, 12)) == {0: [b"0"]}


# How many there may be


def make_id() -> int:
    return random.getrandbits(31)


def begin(sessions: FetchSessions, now_ms: int, *partitions: int) -> int:
    """Begins a session of these partitions; its id, 0 for none."""
    request = fetch(0, 0, topic(dict.fromkeys(partitions, 0)))
    session, wanted = sessions.begin(request, is_by_id=False, now_ms=now_ms)
    assert len(wanted) == len(partitions)
    return 0 if session is None else session.session_id


def use(sessions: FetchSessions, session: int, epoch: int, now_ms: int, *partitions: int) -> None:
    """A request of a session that adds these partitions."""
    request = fetch(session, epoch, topic(dict.fromkeys(partitions, 0)))
    sessions.begin(request, is_by_id=False, now_ms=now_ms)


def test_a_session_makes_room_only_when_it_is_not_used() -> None:
    sessions = FetchSessions(make_id, sessions_max=2)
    first, second = begin(sessions, 0, 0), begin(sessions, 0, 0)
    use(sessions, first, 1, 10)
    assert begin(sessions, UNUSED_MS_MIN - 1, 0) == 0
    third = begin(sessions, UNUSED_MS_MIN, 0)
    assert third
    with pytest.raises(SessionRefused):
        use(sessions, second, 1, UNUSED_MS_MIN)
    use(sessions, first, 2, UNUSED_MS_MIN)
    assert len(sessions) == 2


def test_all_sessions_together_have_so_many_partitions() -> None:
    sessions = FetchSessions(make_id, partitions_max=5)
    first = begin(sessions, 0, 0, 1, 2)
    assert begin(sessions, 0, 0, 1, 2) == 0
    second = begin(sessions, 0, 0, 1)
    with pytest.raises(SessionRefused):
        use(sessions, second, 1, 1, 2)
    use(sessions, first, 1, 1, 3, 4)
    assert begin(sessions, UNUSED_MS_MIN + 1, *range(6)) == 0
    assert len(sessions) == 0


def test_epochs_begin_again_after_the_last_one() -> None:
    sessions = FetchSessions(make_id)
    session = begin(sessions, 0, 0)
    sessions._sessions[session].epoch = EPOCH_MAX
    use(sessions, session, EPOCH_MAX, 0)
    use(sessions, session, 1, 0)


STEP = st.tuples(
    st.sampled_from(("append", "trim", "read", "forget", "add", "fetch")), st.integers(0, 3)
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_a_client_knows_from_its_session_what_whole_responses_would_tell(
    steps: list[tuple[str, int]],
) -> None:
    sessions = FetchSessions(make_id)
    ends, starts, offsets = [0] * 4, [0] * 4, {0: 0}
    session, _ = sessions.begin(fetch(0, 0, topic(offsets)), is_by_id=False, now_ms=0)
    assert session is not None
    known = {0: (-1, -1)}
    changed: dict[int, int] = {}
    forgotten: set[int] = set()
    epoch = 1
    for step, number in [*steps, ("fetch", 0)]:
        if step == "append":
            ends[number] += 1
        elif step == "trim":
            starts[number] = ends[number]
        elif step == "read" and number in offsets:
            offsets[number] = changed[number] = ends[number]
        elif step == "forget" and len(offsets) > 1 and number in offsets:
            del offsets[number]
            changed.pop(number, None)
            known.pop(number, None)
            forgotten.add(number)
        elif step == "add" and number not in offsets and number not in forgotten:
            offsets[number] = changed[number] = 0
        elif step == "fetch":
            request = fetch(session.session_id, epoch, topic(changed))
            request.forgotten_topics_data = (ForgottenTopic("t", NO_ID, tuple(forgotten)),)
            found, wanted = sessions.begin(request, is_by_id=False, now_ms=0)
            assert found is session
            assert {each.wanted.partition: each.wanted.fetch_offset for each in wanted} == offsets
            epoch += 1
            for each in wanted:
                index = each.wanted.partition
                data = PartitionData(index, 0, ends[index], log_start_offset=starts[index])
                data.records = b"x" * (ends[index] > each.wanted.fetch_offset)
                if session.note(each, data):
                    known[index] = (ends[index], starts[index])
                else:
                    assert not data.records
            assert known == {n: (ends[n], starts[n]) for n in offsets}
            changed, forgotten = {}, set()
