"""Consumers in groups and a real broker."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer, Record, State, TopicPartition
from millrace._cluster.cluster import UNKNOWN_TOPIC_TRIES
from millrace._consumer.partition_state import Hold
from millrace.errors import (
    CallbackFailed,
    ClientFailed,
    Closed,
    ConfigError,
    InCallback,
    InstanceFenced,
    InvalidSessionTimeout,
    NoCommittedOffset,
    NoPartitions,
    NotAssigned,
    UnknownMember,
)
from millrace.events import EventKind
from millrace_protocol.messages.group_membership import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
)
from millrace_protocol.messages.metadata import MetadataResponse
from millrace_server.testing import Broker
from tests.clients.watching import Watch, kill
from tests.hang_timeout import HANG_TIMEOUT_S

ALL = [TopicPartition("t", partition) for partition in range(6)]
QUICK: dict[str, Any] = {
    "group": "g",
    "heartbeat_interval_ms": 20,
    "session_timeout_ms": 10_000,
    "retry_backoff_ms": 5,
    "fetch_max_wait_ms": 100,
}
MORTAL: dict[str, Any] = {**QUICK, "session_timeout_ms": 1_000}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        async with Admin(broker.servers) as admin:
            await admin.create_topic("t", partitions=6)
            await admin.create_topic("one", partitions=1)
        yield broker


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    watch = Watch()
    yield watch
    await watch.end()


async def fill(broker: Broker, count: int, *, first: int = 0, topic: str = "t") -> None:
    """`count` records in each partition, with the numbers from `first` on as values."""
    async with Producer(broker.servers) as producer:
        for partition in range(1 if topic == "one" else 6):
            values = [b"%d" % number for number in range(first, first + count)]
            await producer.send_many(topic, values, partition=partition)


async def take(consumer: Consumer[Any, Any], count: int) -> list[Record]:
    async with asyncio.timeout(HANG_TIMEOUT_S):
        return [await consumer.getone() for _ in range(count)]


async def read_on(consumer: Consumer[Any, Any], into: list[Record], enough: asyncio.Event) -> None:
    """Reads until it is cancelled or closed; `enough` is set with each record."""
    try:
        async for record in consumer:
            into.append(record)
            enough.set()
    except Closed:
        pass


async def until_seen(seen: list[Record], news: asyncio.Event, places: int) -> None:
    """Waits until `places` different records have been seen."""
    async with asyncio.timeout(HANG_TIMEOUT_S):
        while len({(r.partition, r.offset) for r in seen}) < places:
            news.clear()
            await news.wait()


async def until_at(members: list[Consumer[Any, Any]], news: asyncio.Event, offset: int) -> None:
    """Waits until all have read so far: a new owner of a partition may read it again."""
    async with asyncio.timeout(HANG_TIMEOUT_S):
        for member in members:
            for where in member.assignment():
                news.clear()
                while await member.position(where) < offset:
                    await news.wait()
                    news.clear()


async def test_two_groups_each_get_every_record(broker: Broker) -> None:
    await fill(broker, 50)
    async with (
        Consumer(broker.servers, "t", **{**QUICK, "group": "a"}) as a,
        Consumer(broker.servers, "t", **{**QUICK, "group": "b"}) as b,
    ):
        for consumer in (a, b):
            places = {(r.partition, r.offset) for r in await take(consumer, 300)}
            assert len(places) == 300


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_three_members_share_the_partitions_and_get_each_record_once(
    broker: Broker, watch: Watch, assignor: str
) -> None:
    options = {**QUICK, "assignors": [assignor]}
    async with (
        Consumer(broker.servers, "t", **options) as a,
        Consumer(broker.servers, "t", **options) as b,
        Consumer(broker.servers, "t", **options) as c,
    ):
        members = [watch.add(each) for each in (a, b, c)]
        await watch.settled(*members, partitions=6)
        assert [len(each.assignment()) for each in members] == [2, 2, 2]
        await fill(broker, 40)
        for each in members:
            mine = set(each.assignment())
            got = await take(each, 80)
            assert {record.topic_partition for record in got} == mine
            assert Counter(r.partition for r in got) == {w.partition: 40 for w in mine}
            assert await each.getmany(timeout_ms=0) == []


async def test_more_members_than_partitions_wait_and_take_over(
    broker: Broker, watch: Watch
) -> None:
    a = watch.add(Consumer(broker.servers, "one", **QUICK))
    b = watch.add(Consumer(broker.servers, "one", **QUICK))
    async with a, b:
        await watch.settled(a, b, partitions=1)
        reader, idle = (a, b) if a.assignment() else (b, a)
        waiting = asyncio.create_task(idle.getone())
        await reader.close()
        await watch.settled(idle, partitions=1)
        await fill(broker, 1, topic="one")
        async with asyncio.timeout(HANG_TIMEOUT_S):
            assert (await waiting).offset == 0


async def test_a_group_goes_on_where_it_has_come(broker: Broker) -> None:
    await fill(broker, 30, topic="one")
    async with Consumer(broker.servers, "one", **QUICK) as consumer:
        async for record in consumer:
            if record.offset == 11:
                break
    async with Consumer(broker.servers, "one", **QUICK) as consumer:
        assert (await take(consumer, 1))[0].offset == 12
        assert await consumer.commit() == await consumer.commit()
        found = (await consumer.committed())[TopicPartition("one", 0)]
        assert found is not None and found.offset == 13


async def test_a_record_that_was_in_hand_at_an_exception_comes_again(broker: Broker) -> None:
    await fill(broker, 30, topic="one")
    with pytest.raises(ZeroDivisionError):
        async with Consumer(broker.servers, "one", **QUICK) as consumer:
            async for record in consumer:
                if record.offset == 11:
                    raise ZeroDivisionError
    async with Consumer(broker.servers, "one", **QUICK) as consumer:
        assert [r.offset for r in await consumer.getmany(5)] == [11, 12, 13, 14, 15]
        await consumer.close()
    async with Consumer(broker.servers, "one", **QUICK) as consumer:
        assert (await consumer.getone()).offset == 11


async def test_automatic_commits_never_cover_records_in_process(broker: Broker) -> None:
    await fill(broker, 30, topic="one")
    options = {**QUICK, "auto_commit_interval_ms": 5}
    one = TopicPartition("one", 0)

    async def committed(consumer: Consumer[Any, Any]) -> int:
        found = (await consumer.committed(one))[one]
        return 0 if found is None else found.offset

    async with Consumer(broker.servers, "one", **options) as consumer:
        assert [r.offset for r in await consumer.getmany(10)] == list(range(10))
        for _ in range(5):
            assert await committed(consumer) == 0
        asked = asyncio.create_task(consumer.getmany(10))
        await asked
        async with asyncio.timeout(HANG_TIMEOUT_S):
            while (found := await committed(consumer)) != 10:
                assert found == 0
        async for record in consumer:
            if record.offset == 25:
                async with asyncio.timeout(HANG_TIMEOUT_S):
                    while (found := await committed(consumer)) != 25:
                        assert found in (10, 20)
                break


async def test_a_member_that_dies_is_replaced(broker: Broker, watch: Watch) -> None:
    await fill(broker, 20)
    a = watch.add(Consumer(broker.servers, "t", **MORTAL))
    b = watch.add(Consumer(broker.servers, "t", **MORTAL))
    async with a, b:
        await watch.settled(a, b, partitions=6)
        mine = a.assignment()
        await take(a, 30)
        await kill(a)
        await watch.settled(b, partitions=6)
        got = await take(b, 120)
        assert {r.topic_partition for r in got} == set(ALL)
        assert set(mine) <= set(b.assignment())


async def test_duplicates_are_those_between_the_last_commit_and_the_kill(
    broker: Broker, watch: Watch
) -> None:
    await fill(broker, 50, topic="one")
    options = {**MORTAL, "auto_commit": False}
    a = watch.add(Consumer(broker.servers, "one", **options))
    b = watch.add(Consumer(broker.servers, "one", **options))
    async with a, b:
        await watch.settled(a, b, partitions=1)
        first, second = (a, b) if a.assignment() else (b, a)
        before = [r.offset for r in await take(first, 20)]
        await first.commit()
        before += [r.offset for r in await take(first, 7)]
        await kill(first)
        after = [r.offset for r in await take(second, 30)]
    assert before == list(range(27))
    assert after == list(range(20, 50))


async def test_a_partition_is_not_given_up_while_a_commit_of_it_is_under_way(
    broker: Broker, watch: Watch
) -> None:
    await fill(broker, 20)
    revoked: list[TopicPartition] = []
    options = {**QUICK, "auto_commit": False}
    a = watch.add(Consumer(broker.servers, "t", on_revoked=revoked.extend, **options))
    b = watch.add(Consumer(broker.servers, "t", **options))
    async with a:
        await watch.settled(a, partitions=6)
        await take(a, 120)
        assert a._commits is not None
        # The lock stands for a broker that takes its time.
        async with a._commits._turn:
            commit = asyncio.create_task(a.commit())
            await b.start()
            async with asyncio.timeout(HANG_TIMEOUT_S):
                # No event tells that a revocation begins.
                while not revoked and not any(  # noqa: ASYNC110
                    a._positions[where].holds & Hold.REVOKED for where in ALL
                ):
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert revoked == []
        assert all(outcome.is_committed for outcome in (await commit).values())
        await watch.settled(a, b, partitions=6)
        assert sorted(revoked) == b.assignment()
        await b.close()


async def test_cooperative_members_keep_reading_what_they_keep(
    broker: Broker, watch: Watch
) -> None:
    revoked: list[TopicPartition] = []
    a = watch.add(Consumer(broker.servers, "t", on_revoked=revoked.extend, **QUICK))
    async with a:
        await watch.settled(a, partitions=6)
        states = {where: a._positions[where] for where in ALL}
        b = watch.add(Consumer(broker.servers, "t", **QUICK))
        async with b:
            await watch.settled(a, b, partitions=6)
            kept = a.assignment()
            assert len(kept) == 3
            assert sorted(revoked) == [where for where in ALL if where not in kept]
            # Not even the read-ahead of what stays was touched.
            assert all(a._positions[where] is states[where] for where in kept)
            assert sorted(b.assignment()) == sorted(revoked)


async def test_eager_members_give_up_everything_and_commit_first(
    broker: Broker, watch: Watch
) -> None:
    await fill(broker, 10)
    options = {**QUICK, "assignors": ["range"]}
    revoked: list[list[TopicPartition]] = []
    a = watch.add(Consumer(broker.servers, "t", on_revoked=revoked.append, **options))
    async with a:
        got = await take(a, 60)
        waiting = asyncio.create_task(a.getone())
        b = watch.add(Consumer(broker.servers, "t", **options))
        async with b:
            await watch.settled(a, b, partitions=6)
            assert revoked[0] == ALL
            committed = await b.committed(*ALL)
            assert all(each is not None and each.offset == 10 for each in committed.values())
            assert await b.getmany(timeout_ms=0) == []
            assert "before t-0, t-1" in watch.sentences(a, EventKind.ASSIGNED)[-1]
            waiting.cancel()
    assert len(got) == 60


async def test_a_static_member_restarts_without_a_rebalance(broker: Broker, watch: Watch) -> None:
    a = watch.add(Consumer(broker.servers, "t", group_instance_id="a", **QUICK))
    b = watch.add(Consumer(broker.servers, "t", group_instance_id="b", **QUICK))
    async with a:
        async with b:
            await watch.settled(a, b, partitions=6)
            held = b.assignment()
            rebalances = watch.kinds(a).count(EventKind.REBALANCING)
        b = watch.add(Consumer(broker.servers, "t", group_instance_id="b", **QUICK))
        async with b:
            await watch.settled(a, b, partitions=6)
            assert b.assignment() == held
            for each in (a, b):
                health = each.health().group
                assert health is not None and health.generation >= 1
            assert EventKind.REBALANCING not in watch.kinds(b)
            assert watch.kinds(a).count(EventKind.REBALANCING) == rebalances


async def test_the_leader_of_static_members_restarts_without_a_rebalance(
    broker: Broker, watch: Watch
) -> None:
    a = watch.add(Consumer(broker.servers, "t", group_instance_id="a", **QUICK))
    async with a:
        await watch.settled(a, partitions=6)
        b = watch.add(Consumer(broker.servers, "t", group_instance_id="b", **QUICK))
        async with b:
            await watch.settled(a, b, partitions=6)
            held = a.assignment()
            rebalances = watch.kinds(b).count(EventKind.REBALANCING)
            await a.close()
            a = watch.add(Consumer(broker.servers, "t", group_instance_id="a", **QUICK))
            async with a:
                await watch.settled(a, b, partitions=6)
                assert a.assignment() == held
                assert EventKind.REBALANCING not in watch.kinds(a)
                assert watch.kinds(b).count(EventKind.REBALANCING) == rebalances


async def test_of_two_with_one_instance_id_the_first_is_told(broker: Broker, watch: Watch) -> None:
    lost: list[TopicPartition] = []
    a = watch.add(
        Consumer(broker.servers, "t", group_instance_id="a", on_lost=lost.extend, **QUICK)
    )
    async with a:
        await watch.settled(a, partitions=6)
        waiting = asyncio.create_task(a.getone())
        async with Consumer(broker.servers, "t", group_instance_id="a", **QUICK):
            async with asyncio.timeout(HANG_TIMEOUT_S):
                with pytest.raises(InstanceFenced, match="own instance id"):
                    await waiting
            with pytest.raises(InstanceFenced):
                await a.getone()
            await watch.until(lambda: lost == ALL)


async def test_a_member_that_was_taken_out_loses_its_partitions_and_joins_again(
    broker: Broker, watch: Watch
) -> None:
    lost: list[TopicPartition] = []
    a = watch.add(Consumer(broker.servers, "t", on_lost=lost.extend, **QUICK))
    async with a:
        await watch.settled(a, partitions=6)
        health = a.health().group
        assert health is not None
        connection = await a._cluster.any_connection()
        leaving = LeavingMember(health.member_id, None, "an operator says so")
        await connection.call(
            LeaveGroupRequest("g", (leaving,)), LeaveGroupResponse, timeout_ms=10_000
        )
        await watch.heard(a, EventKind.LOST)
        await watch.settled(a, partitions=6)
        assert lost == ALL
        after = a.health().group
        assert after is not None and after.member_id != health.member_id
        await fill(broker, 1)
        assert len(await take(a, 6)) == 6


async def test_a_fenced_commit_says_so_for_each_partition(broker: Broker, watch: Watch) -> None:
    # A heartbeat would notice first.
    options = {**QUICK, "heartbeat_interval_ms": 9_000}
    a = watch.add(Consumer(broker.servers, "t", **options))
    async with a:
        await watch.settled(a, partitions=6)
        health = a.health().group
        assert health is not None
        connection = await a._cluster.any_connection()
        leaving = LeavingMember(health.member_id, None, None)
        await connection.call(
            LeaveGroupRequest("g", (leaving,)), LeaveGroupResponse, timeout_ms=10_000
        )
        outcomes = await a.commit({("t", 0): 3, ("t", 1): (4, "note")})
        for where, offset in ((ALL[0], 3), (ALL[1], 4)):
            outcome = outcomes[where]
            assert isinstance(outcome.error, UnknownMember)
            assert (outcome.offset, outcome.generation) == (offset, health.generation)
            assert outcome.is_fenced and not outcome.is_committed and not outcome.is_retriable
        await watch.heard(a, EventKind.COMMIT_FAILED)
        assert "2 of 2 commits failed" in watch.sentences(a, EventKind.COMMIT_FAILED)[0]
        # It joins again by itself.
        await watch.settled(a, partitions=6)
        outcomes = await a.commit({("t", 0): (3, "note"), ("other", 0): 1})
        assert outcomes[ALL[0]].is_committed
        assert isinstance(outcomes[TopicPartition("other", 0)].error, NotAssigned)
        assert outcomes[TopicPartition("other", 0)].is_fenced
        found = (await a.committed(ALL[0]))[ALL[0]]
        assert found is not None and (found.offset, found.metadata) == (3, "note")


async def test_slow_processing_does_not_end_the_membership(broker: Broker, watch: Watch) -> None:
    await fill(broker, 1, topic="one")
    options = {**MORTAL, "max_poll_interval_ms": 1_300, "drain_timeout_ms": 200}
    a = watch.add(Consumer(broker.servers, "one", **options))
    async with a:
        record = await a.getone()
        # The user is busy with it, for longer than a session.
        await watch.heard(a, EventKind.PROCESSING_OVERDUE)
        assert watch.kinds(a).index(EventKind.PROCESSING_SLOW) < watch.kinds(a).index(
            EventKind.PROCESSING_OVERDUE
        )
        health = a.health().group
        assert health is not None and health.state == "stable"
        assert health.processing_left_ms is not None and health.processing_left_ms <= 0
        outcome = (await a.commit())[record.topic_partition]
        assert (outcome.is_committed, outcome.offset) == (True, 1)
        assert not {EventKind.REBALANCING, EventKind.LOST} & set(watch.kinds(a))
        await fill(broker, 1, topic="one")
        assert (await take(a, 1))[0].offset == 1


async def test_a_processing_deadline_can_be_extended(broker: Broker, watch: Watch) -> None:
    await fill(broker, 2, topic="one")
    a = watch.add(Consumer(broker.servers, "one", **QUICK, max_poll_interval_ms=200))
    async with a:
        await a.getone()
        await watch.heard(a, EventKind.PROCESSING_SLOW)
        a.extend_processing(60_000)
        health = a.health().group
        assert health is not None and health.processing_left_ms is not None
        assert 200 < health.processing_left_ms <= 60_000
        await a.getone()
        health = a.health().group
        assert health is not None and health.processing_left_ms is not None
        assert health.processing_left_ms <= 200
        with pytest.raises(ValueError, match="extra_ms"):
            a.extend_processing(0)


async def test_a_slow_member_leaves_if_configured_and_rejoins(broker: Broker, watch: Watch) -> None:
    await fill(broker, 10, topic="one")
    options = {**QUICK, "max_poll_interval_ms": 100, "on_overdue": "leave"}
    a = watch.add(Consumer(broker.servers, "one", **options))
    async with a:
        await a.getone()
        await watch.heard(a, EventKind.REVOKED)
        assert a.assignment() == []
        # It has not committed the record.
        assert (await take(a, 1))[0].offset == 0


async def test_revoked_partitions_wait_for_records_in_process(broker: Broker, watch: Watch) -> None:
    await fill(broker, 10)
    options = {**QUICK, "assignors": ["range"]}
    a = watch.add(Consumer(broker.servers, "t", **options))
    async with a:
        in_hand = await a.getmany(60)
        while len(in_hand) < 60:
            in_hand += await a.getmany(60)
        b = watch.add(Consumer(broker.servers, "t", **options))
        async with b:
            await watch.heard(a, EventKind.REBALANCING)
            health = a.health().group
            assert health is not None and health.state == "revoking"
            # The join of the other is parked, and keeps none of its other calls waiting.
            await b.committed(*ALL)
            health = b.health().group
            assert health is not None and health.state == "joining"
            # Asking for more says that they are done with.
            waiting = asyncio.create_task(a.getone())
            await watch.settled(a, b, partitions=6)
            assert await b.getmany(timeout_ms=0) == []
            waiting.cancel()


async def test_the_wait_for_records_in_process_is_bounded(broker: Broker, watch: Watch) -> None:
    await fill(broker, 1)
    options = {**QUICK, "assignors": ["range"], "drain_timeout_ms": 100}
    a = watch.add(Consumer(broker.servers, "t", **options))
    async with a:
        await a.getone()
        b = watch.add(Consumer(broker.servers, "t", **options))
        async with b:
            await watch.settled(a, b, partitions=6)
            assert "were in hand for 100 ms" in watch.sentences(a, EventKind.PROCESSING_OVERDUE)[0]
            got = await take(a, 3) + await take(b, 3)
            assert len({r.partition for r in got}) == 6


async def test_callbacks_may_commit_and_seek_but_not_wait_for_themselves(
    broker: Broker, watch: Watch
) -> None:
    await fill(broker, 10)
    heard: list[str] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        heard.append("assigned")
        for where in partitions:
            assert await a.position(where) == 0
            a.seek(where, 7)
        for call in (a.getone, a.close, a.getmany):
            with pytest.raises(InCallback, match="return from it"):
                await call()

    async def revoked(partitions: list[TopicPartition]) -> None:
        heard.append("revoked")
        outcomes = await a.commit(dict.fromkeys(partitions, 9))
        assert all(outcome.is_committed for outcome in outcomes.values())

    a = watch.add(
        Consumer(
            broker.servers,
            "t",
            on_assigned=assigned,
            on_revoked=revoked,
            **{**QUICK, "auto_commit": False},
        )
    )
    async with a:
        got = await take(a, 18)
        assert {r.offset for r in got} == {7, 8, 9}
        a.unsubscribe()
        await watch.heard(a, EventKind.REVOKED)
        committed = await a.committed(*ALL)
        assert all(each is not None and each.offset == 9 for each in committed.values())
    assert heard == ["assigned", "revoked"]
    assert EventKind.CALLBACK_FAILED not in watch.kinds(a)


async def test_a_callback_that_raises_is_told_and_the_group_goes_on(
    broker: Broker, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    def assigned(partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError("in the user's code")

    a = watch.add(Consumer(broker.servers, "t", on_assigned=assigned, **QUICK))
    async with a:
        await watch.settled(a, partitions=6)
        assert "ZeroDivisionError" in watch.sentences(a, EventKind.CALLBACK_FAILED)[0]
        health = a.health()
        assert isinstance(health.last_error, CallbackFailed)
        assert isinstance(health.last_error.__cause__, ZeroDivisionError)
        assert health.group is not None
        assert health.group.callback_error is health.last_error
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "assigned raised ZeroDivisionError" in line.getMessage()
    assert line.exc_text is not None and "in the user's code" in line.exc_text
    assert ", in assigned" in line.exc_text


async def test_a_pattern_takes_topics_in_as_they_come(broker: Broker, watch: Watch) -> None:
    a = watch.add(Consumer(broker.servers, **QUICK, metadata_max_age_ms=30))
    async with a, Admin(broker.servers) as admin:
        with pytest.raises(NoPartitions):
            await a.getone()
        a.subscribe(re.compile("o.*"))
        await watch.settled(a, partitions=1)
        assert a.subscription() == ["one"]
        await admin.create_topic("other", partitions=2)
        await watch.settled(a, partitions=3)
        assert a.subscription() == ["one", "other"]
        assert "subscribes to one, other" in watch.sentences(a, EventKind.REBALANCING)[0]


async def test_partitions_that_are_added_are_shared_and_read_from_their_beginning(
    broker: Broker, watch: Watch
) -> None:
    a = watch.add(Consumer(broker.servers, "one", start="latest", **QUICK, metadata_max_age_ms=30))
    async with a, Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        await watch.settled(a, partitions=1)
        await admin.create_partitions("one", 3)
        await producer.send("one", b"new", partition=2)
        (record,) = await take(a, 1)
        assert (record.partition, record.offset) == (2, 0)
        assert len(a.assignment()) == 3


async def test_subscriptions_change_and_end(broker: Broker, watch: Watch) -> None:
    a = watch.add(Consumer(broker.servers, "one", **QUICK))
    async with a:
        await watch.settled(a, partitions=1)
        a.subscribe(["t", "one"])
        await watch.settled(a, partitions=7)
        a.subscribe(["t"])
        await watch.settled(a, partitions=6)
        a.unsubscribe()
        await watch.heard(a, EventKind.REVOKED, 2)
        with pytest.raises(NoPartitions):
            await a.getone()
        a.subscribe(["one"])
        await watch.settled(a, partitions=1)
        with pytest.raises(ConfigError, match="unsubscribe first"):
            a.assign([("t", 0)])
        with pytest.raises(ConfigError, match="list or a pattern"):
            a.subscribe("one")


@pytest.mark.parametrize(("reset", "offset"), [("earliest", 0), ("latest", 10)])
async def test_begins_where_it_is_told_to_where_nothing_is_committed(
    broker: Broker, watch: Watch, reset: Any, offset: int
) -> None:
    await fill(broker, 10, topic="one")
    a = watch.add(Consumer(broker.servers, "one", auto_offset_reset=reset, **QUICK))
    async with a:
        await watch.settled(a, partitions=1)
        assert await a.position(("one", 0)) == offset


async def test_nothing_committed_is_an_error_if_told_so(broker: Broker, watch: Watch) -> None:
    await fill(broker, 10, topic="one")
    a = watch.add(Consumer(broker.servers, "one", auto_offset_reset="error", **QUICK))
    async with a:
        for _ in range(2):
            with pytest.raises(NoCommittedOffset, match="one-0"):
                await a.getone()
        a.seek(("one", 0), 4)
        assert (await a.getone()).offset == 4


async def test_partitions_assigned_by_hand_commit_without_membership(broker: Broker) -> None:
    await fill(broker, 20, topic="one")
    one = TopicPartition("one", 0)
    async with Consumer(broker.servers, **QUICK) as a:
        a.assign([one])
        assert [r.offset for r in await take(a, 5)] == list(range(5))
        outcome = (await a.commit())[one]
        assert (outcome.is_committed, outcome.offset, outcome.generation) == (True, 5, -1)
        with pytest.raises(ConfigError, match="by hand"):
            a.subscribe(["t"])
    async with Consumer(broker.servers, **QUICK) as a:
        a.assign([one])
        assert await a.position(one) == 5
        assert (await a.getone()).offset == 5
        a.assign([one], start="earliest")
        assert await a.position(one) == 6


async def test_a_seek_before_the_committed_offset_is_known_is_not_undone(broker: Broker) -> None:
    await fill(broker, 20, topic="one")
    one = TopicPartition("one", 0)
    async with Consumer(broker.servers, **QUICK) as a:
        a.assign([one])
        assert (await a.commit({one: 5}))[one].is_committed
    async with Consumer(broker.servers, **QUICK) as a:
        a.assign([one])
        a.seek_to_beginning(one)
        assert (await a.getone()).offset == 0


async def test_an_outsiders_commit_is_refused_while_the_group_has_members(
    broker: Broker, watch: Watch
) -> None:
    a = watch.add(Consumer(broker.servers, "one", **QUICK))
    async with a, Consumer(broker.servers, **QUICK) as outsider:
        await watch.settled(a, partitions=1)
        outsider.assign([("one", 0)], start="earliest")
        outcome = (await outsider.commit({("one", 0): 5}))[TopicPartition("one", 0)]
        assert outcome.is_fenced and "stop them first" in str(outcome.error)


async def test_terms_that_the_broker_refuses_are_raised(broker: Broker) -> None:
    async with Consumer(broker.servers, "t", group="g", session_timeout_ms=10_000_000) as a:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            with pytest.raises(InvalidSessionTimeout):
                await a.getone()
    async with Consumer(broker.servers, "t") as without, asyncio.timeout(HANG_TIMEOUT_S):
        with pytest.raises(ConfigError, match="give the consumer a group"):
            await without.commit()
        with pytest.raises(ConfigError, match="give the consumer a group"):
            without.subscribe(["t"])


async def test_members_carry_on_over_restarts_of_the_broker(broker: Broker, watch: Watch) -> None:
    """Restarts at once after a join, that is in the middle of a rebalance, and among commits."""
    options = {**QUICK, "session_timeout_ms": 2_000, "auto_commit_interval_ms": 3}
    seen: list[Record] = []
    news = asyncio.Event()
    await fill(broker, 100)
    members = [watch.add(Consumer(broker.servers, "t", **options)) for _ in range(3)]
    readers = []
    for round_, member in enumerate(members):
        await member.start()
        readers.append(asyncio.create_task(read_on(member, seen, news)))
        await broker.stop()
        await broker.start()
        await fill(broker, 100, first=100 * (round_ + 1))
    await until_seen(seen, news, 6 * 400)
    await watch.settled(*members, partitions=6)
    await until_at(members, news, 400)
    for member in members:
        await member.close()
    await asyncio.gather(*readers)
    for partition in range(6):
        # Where a partition changes hands it may go back, never forth.
        offsets = [r.offset for r in seen if r.partition == partition]
        assert all(b <= a + 1 for a, b in pairwise(offsets))
    async with Consumer(broker.servers, **QUICK) as after:
        committed = await after.committed(*ALL)
        assert {w: each and each.offset for w, each in committed.items()} == dict.fromkeys(ALL, 400)


async def test_an_automatic_commit_never_takes_the_group_back(broker: Broker, watch: Watch) -> None:
    await fill(broker, 30, topic="one")
    one = TopicPartition("one", 0)
    options = {**QUICK, "auto_commit_interval_ms": 2}
    sent: list[int] = []
    a = watch.add(Consumer(broker.servers, "one", **options))
    async with a:
        assert a._commits is not None
        commit = a._commits.commit

        async def noted(offsets: Any, *, timeout_ms: int) -> Any:
            sent.extend(offset for offset, _ in offsets.values())
            return await commit(offsets, timeout_ms=timeout_ms)

        a._commits.commit = noted  # type: ignore[method-assign]
        assert [r.offset for r in await a.getmany(10)] == list(range(10))
        # The user knows better than what is taken for done.
        assert (await a.commit({one: 7}))[one].is_committed
        for _ in range(20):
            await a.committed(one)
        found = (await a.committed(one))[one]
        assert found is not None and found.offset == 7
        assert sent == sorted(sent)
        # To go back is the user's to ask.
        a.seek(one, 2)
        async with asyncio.timeout(HANG_TIMEOUT_S):
            while (found := (await a.committed(one))[one]) is None or found.offset != 2:
                pass


async def test_no_acked_commit_is_lost_over_restarts_among_many_commits(
    broker: Broker, watch: Watch
) -> None:
    a = watch.add(Consumer(broker.servers, "t", **{**QUICK, "auto_commit": False}))
    acked: dict[TopicPartition, int] = {}
    some_acked = asyncio.Event()
    async with a:
        await watch.settled(a, partitions=6)

        async def storm() -> None:
            for offset in range(1, 10_000):
                outcomes = await a.commit(dict.fromkeys(ALL, offset))
                for where, outcome in outcomes.items():
                    if outcome.is_committed:
                        acked[where] = outcome.offset
                        some_acked.set()

        async with Consumer(broker.servers, group="g") as onlooker:
            for _ in range(3):
                storming = asyncio.create_task(storm())
                async with asyncio.timeout(HANG_TIMEOUT_S):
                    await some_acked.wait()
                    await broker.stop()
                    storming.cancel()
                    await asyncio.gather(storming, return_exceptions=True)
                    await broker.start()
                    found = await onlooker.committed(*ALL)
                for where, offset in acked.items():
                    committed = found[where]
                    assert committed is not None and committed.offset >= offset
                acked.clear()
                some_acked.clear()
        assert EventKind.LOST not in watch.kinds(a)


async def test_a_bug_in_the_background_fails_the_calls_that_wait(
    broker: Broker, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = watch.add(Consumer(broker.servers, "t", **QUICK))
    async with a:
        await watch.settled(a, partitions=6)
        waiting = asyncio.create_task(a.getone())

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        assert a._group is not None
        monkeypatch.setattr(a._group._membership, "on_heard", broken)
        async with asyncio.timeout(HANG_TIMEOUT_S):
            with pytest.raises(ClientFailed, match="a bug"):
                await waiting
        assert a.state is State.FAILED
        with pytest.raises(ClientFailed, match="a bug"):
            await a.commit()


async def test_topics_that_go_and_come_are_left_and_taken(broker: Broker, watch: Watch) -> None:
    a = watch.add(Consumer(broker.servers, "one", "t", **QUICK, metadata_max_age_ms=30))
    async with a, Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        await watch.settled(a, partitions=7)
        await admin.delete_topic("t")
        await watch.settled(a, partitions=1)
        assert a.assignment() == [TopicPartition("one", 0)]
        a.subscribe(["one", "later"])
        await watch.until(
            lambda: any("later" in s for s in watch.sentences(a, EventKind.FETCH_FAILED))
        )
        await watch.settled(a, partitions=1)
        await admin.create_topic("later", partitions=2)
        await watch.settled(a, partitions=3)
        for topic in ("one", "later"):
            await producer.send(topic, b"x", partition=0)
            assert (await take(a, 1))[0].topic == topic


@pytest.mark.parametrize(("denials", "generations"), [(1, 1), (UNKNOWN_TOPIC_TRIES, 2)])
async def test_a_topic_that_some_brokers_do_not_know_yet_is_assigned(
    broker: Broker,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    denials: int,
    generations: int,
) -> None:
    a = watch.add(Consumer(broker.servers, "one", **QUICK))
    ask, asked = a._cluster._ask_for_metadata, Counter[tuple[str, ...] | None]()

    async def ask_brokers_of_which_some_lag(topics: tuple[str, ...] | None) -> MetadataResponse:
        asked[topics] += 1
        if topics != ("one",) or not 2 <= asked[topics] < 2 + denials:
            return await ask(topics)
        answer = await ask(("unknown",))
        return replace(answer, topics=(replace(answer.topics[0], name="one"),))

    monkeypatch.setattr(a._cluster, "_ask_for_metadata", ask_brokers_of_which_some_lag)
    async with a:
        await watch.settled(a, partitions=1)
        group = a.health().group
        assert group is not None and group.generation == generations


async def test_a_topic_that_is_subscribed_to_during_a_refresh_is_reported_as_missing(
    broker: Broker, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = watch.add(Consumer(broker.servers, "one", **QUICK, metadata_max_age_ms=30))
    refresh = a._cluster.refresh

    async def refresh_and_subscribe(topics: Iterable[str]) -> None:
        await refresh(topics)
        monkeypatch.setattr(a._cluster, "refresh", refresh)
        a.subscribe(["one", "second"])

    async with a:
        await watch.settled(a, partitions=1)
        monkeypatch.setattr(a._cluster, "refresh", refresh_and_subscribe)
        a.subscribe(["one", "first"])
        await watch.until(
            lambda: any("second" in s for s in watch.sentences(a, EventKind.FETCH_FAILED))
        )


async def test_a_consumer_that_closes_in_a_rebalance_commits_and_leaves(
    broker: Broker, watch: Watch
) -> None:
    await fill(broker, 20, topic="one")
    a = watch.add(Consumer(broker.servers, "one", **QUICK))
    async with a:
        await take(a, 20)
        a.subscribe(["one", "t"])
        await watch.heard(a, EventKind.REBALANCING)
    assert EventKind.REVOKED in watch.kinds(a)
    with pytest.raises(Closed):
        a.subscribe(["one"])
    async with Consumer(broker.servers, "one", **QUICK) as b:
        found = (await b.committed(("one", 0)))[TopicPartition("one", 0)]
        assert found is not None and found.offset == 20


async def test_unsubscribe_commits_and_assign_may_follow(broker: Broker, watch: Watch) -> None:
    await fill(broker, 20, topic="one")
    one = TopicPartition("one", 0)
    a = watch.add(Consumer(broker.servers, "one", **QUICK))
    async with a:
        assert [r.offset for r in await a.getmany(5)] == list(range(5))
        assert [r.offset for r in await a.getmany(5)] == list(range(5, 10))
        a.unsubscribe()
        await watch.heard(a, EventKind.REVOKED)
        found = (await a.committed(one))[one]
        assert found is not None and found.offset == 5
        a.assign([one])
        assert (await take(a, 1))[0].offset == 5
        outcome = (await a.commit())[one]
        assert (outcome.error, outcome.offset, outcome.generation) == (None, 6, -1)
    # Closing at once lets nothing of the leaving be lost.
    b = Consumer(broker.servers, "one", **QUICK)
    async with b:
        assert (await take(b, 1))[0].offset == 6
        assert (await take(b, 1))[0].offset == 7
        b.unsubscribe()
    async with Admin(broker.servers) as admin:
        assert (await admin.describe_group("g")).members == ()
        assert (await admin.list_group_offsets("g"))[one].offset == 8


async def test_a_batch_is_done_with_when_the_next_is_asked_for(broker: Broker) -> None:
    one = TopicPartition("one", 0)
    for first in range(0, 40, 10):
        await fill(broker, 10, first=first, topic="one")
    options = {**QUICK, "max_partition_bytes": 200, "auto_commit_interval_ms": 3}
    async with Consumer(broker.servers, "one", **options) as a, asyncio.timeout(HANG_TIMEOUT_S):
        done = 0
        async for batch in a.batches():
            while (found := (await a.committed(one))[one]) is None or found.offset < done:
                pass
            assert found.offset == done == batch.base_offset
            done = batch.next_offset
            if done == 40:
                break
