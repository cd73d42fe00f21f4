"""Topics: create, widen, configure, delete, and restarts (W-4.7 to W-4.11, W-6.5)."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    NewTopic,
)
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_server.testing import Broker
from millrace_server.topic_config import TOPIC_CONFIG_KEYS
from tests.broker.wire import Wire, batch, connect, open_files, until, values_of
from tests.hang_timeout import HANG_TIMEOUT_S

NO_ID = uuid.UUID(int=0)


async def test_a_created_topic_is_described_by_metadata(wire: Wire) -> None:
    """W-4.2, W-4.7"""
    created = await wire.create("t", partitions=3, configs={"retention.ms": "86400000"})
    assert (created.error_code, created.error_message) == (0, None)
    assert (created.partitions, created.replication_factor) == (3, 1)
    topic = await wire.topic("t")
    assert (topic.topic_id, topic.is_internal) == (created.topic_id, False)
    assert created.topic_id != NO_ID
    assert [(p.partition, p.leader_id, p.leader_epoch) for p in topic.partitions] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert {(p.error_code, p.replicas, p.isr) for p in topic.partitions} == {(0, (0,), (0,))}
    everything = await wire.ask(MetadataRequest(None), MetadataResponse)
    assert (everything.controller_id, everything.brokers[0].node_id) == (0, 0)
    assert [t.name for t in everything.topics] == ["t"]


async def test_metadata_tells_the_address_that_was_bound(broker: Broker, wire: Wire) -> None:
    """W-4.2"""
    (node,) = (await wire.ask(MetadataRequest(()), MetadataResponse)).brokers
    assert (node.host, node.port) == ("127.0.0.1", broker.port)


async def test_metadata_tells_the_advertised_address() -> None:
    """W-4.2"""
    async with Broker(advertise="log.example:9000") as broker, connect(broker.port) as wire:
        (node,) = (await wire.ask(MetadataRequest(()), MetadataResponse)).brokers
        assert (node.host, node.port) == ("log.example", 9000)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "a\\b", "caf\xe9", "a\n", "x" * 250, "\0", "../../etc"]
)
async def test_an_invalid_topic_name_is_refused(broker: Broker, wire: Wire, name: str) -> None:
    """W-6.5"""
    before = sorted(path.name for path in broker.data.iterdir())
    created = await wire.create(name)
    assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (created.topic_id, created.partitions, created.replication_factor) == (NO_ID, -1, -1)
    assert "249" in (created.error_message or "")
    assert sorted(path.name for path in broker.data.iterdir()) == before


async def test_names_of_the_broker_are_refused(wire: Wire) -> None:
    """W-6.5"""
    created = await wire.create("__mine")
    assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    for result in (
        await wire.delete("__cluster_metadata"),
        await wire.alter("__cluster_metadata", {"retention.ms": "1"}),
        await wire.widen("__cluster_metadata", 2),
    ):
        assert result.error_code


@pytest.mark.parametrize("name", ["a", "_a", "-", "...", "A-1", "x" * 249, "a-0", "a.deleted"])
async def test_every_other_name_is_served_and_deleted(
    broker: Broker, wire: Wire, name: str
) -> None:
    """W-6.5"""
    assert (await wire.create(name, partitions=11)).error_code == 0
    assert (await wire.produce(name, batch(b"v"), partition=10)).error_code == 0
    assert (await wire.delete(name)).error_code == 0
    left = [p.name for p in broker.data.iterdir() if p.is_dir()]
    assert left == ["__cluster_metadata-0"]
    assert (await wire.create(name)).error_code == 0


@pytest.mark.parametrize("partitions", [0, -2, -(2**31), 4_001, 2**31 - 1])
async def test_a_count_of_partitions_out_of_bounds_is_refused(wire: Wire, partitions: int) -> None:
    """W-4.7"""
    created = await wire.create("t", partitions=partitions)
    assert created.error_code == ErrorCode.INVALID_PARTITIONS
    assert str(partitions) in (created.error_message or "")
    assert await wire.topics() == []


async def test_all_topics_together_have_a_most_of_partitions() -> None:
    """W-6.6"""
    async with Broker(partitions_max=5) as broker, connect(broker.port) as wire:
        await wire.create("a", partitions=3)
        too_many = await wire.create("b", partitions=3)
        assert too_many.error_code == ErrorCode.INVALID_PARTITIONS
        assert "has 3 partitions and may have 5" in (too_many.error_message or "")
        assert (await wire.create("b", partitions=1)).error_code == 0
        assert (await wire.widen("a", 5)).error_code == ErrorCode.INVALID_PARTITIONS
        assert (await wire.widen("a", 4)).error_code == 0


async def test_minus_one_is_the_brokers_default() -> None:
    """W-4.7"""
    async with Broker(partitions=4) as broker, connect(broker.port) as wire:
        created = await wire.create("t", partitions=-1, replication_factor=-1)
        assert (created.partitions, created.replication_factor) == (4, 1)


@pytest.mark.parametrize("factor", [0, 2, 3, -2, 2**15 - 1])
async def test_one_broker_holds_one_copy(wire: Wire, factor: int) -> None:
    """W-4.7"""
    created = await wire.create("t", replication_factor=factor)
    assert created.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_more_in_sync_replicas_than_replicas_are_refused(wire: Wire) -> None:
    """W-4.7, W-4.11"""
    created = await wire.create("t", configs={"min.insync.replicas": "2"})
    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert "min.insync.replicas" in (created.error_message or "")
    await wire.create("t")
    altered = await wire.alter("t", {"min.insync.replicas": "2"})
    assert altered.error_code == ErrorCode.INVALID_CONFIG


async def test_an_unknown_setting_is_refused_with_those_there_are(wire: Wire) -> None:
    """W-4.7"""
    created = await wire.create("t", configs={"retention.hours": "1"})
    assert created.error_code == ErrorCode.INVALID_CONFIG
    sentence = created.error_message or ""
    assert "retention.hours" in sentence
    assert all(key in sentence for key in TOPIC_CONFIG_KEYS)
    assert await wire.topics() == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "week"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.bytes", str(2**63)),
        ("segment.bytes", "1023"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("max.message.bytes", "60"),
        ("min.insync.replicas", "0"),
        ("index.interval.bytes", "-1"),
        ("durability", "maybe"),
        ("durability", "FSYNC"),
        ("cleanup.policy", "compress"),
        ("cleanup.policy", "delete,"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "half"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("delete.retention.ms", "-1"),
        ("message.timestamp.type", "createtime"),
    ],
)
async def test_a_bad_value_is_refused_and_its_key_named(wire: Wire, key: str, value: str) -> None:
    """W-4.10"""
    created = await wire.create("t", configs={"retention.bytes": "1", key: value})
    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert (created.error_message or "").startswith(key)
    await wire.create("t")
    altered = await wire.alter("t", {"segment.ms": "5", key: value})
    assert altered.error_code == ErrorCode.INVALID_CONFIG
    assert (await wire.configs("t"))["segment.ms"] == (str(7 * 86_400_000), True), "all or none"


async def test_lags_of_compaction_that_contradict_each_other_are_refused(wire: Wire) -> None:
    """W-4.10"""
    created = await wire.create(
        "t", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}
    )
    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert created.error_message == (
        "min.compaction.lag.ms is 10 and max.compaction.lag.ms is 9; "
        "a record cannot be cleaned before the one and after the other"
    )
    await wire.create("t", configs={"max.compaction.lag.ms": "9"})
    altered = await wire.alter("t", {"min.compaction.lag.ms": "10"})
    assert altered.error_code == ErrorCode.INVALID_CONFIG


async def test_policies_may_be_joined_in_any_order(wire: Wire) -> None:
    """W-4.10"""
    await wire.create("t", configs={"cleanup.policy": "delete, compact"})
    assert (await wire.configs("t"))["cleanup.policy"] == ("compact,delete", False)


async def test_validate_only_answers_and_changes_nothing(broker: Broker, wire: Wire) -> None:
    """W-4.7, W-4.9, W-4.11"""
    created = await wire.create("t", partitions=5, validate_only=True)
    assert (created.error_code, created.partitions) == (0, 5)
    assert await wire.topics() == []
    assert not (broker.data / "t-0").exists()
    refused = await wire.create("t", partitions=0, validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    await wire.create("t")
    assert (await wire.widen("t", 3, validate_only=True)).error_code == 0
    assert (await wire.alter("t", {"segment.ms": "9"}, validate_only=True)).error_code == 0
    assert len((await wire.topic("t")).partitions) == 1
    assert (await wire.configs("t"))["segment.ms"][1]
    exists = await wire.create("t", validate_only=True)
    assert exists.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_other_requests_are_served_while_many_partitions_are_validated(
    broker: Broker,
) -> None:
    topics = tuple(NewTopic(f"t{number}", 1_000, -1, ()) for number in range(3))
    request = CreateTopicsRequest(topics, validate_only=True)
    async with connect(broker.port) as wire, connect(broker.port) as other:
        validating = asyncio.ensure_future(wire.ask(request, CreateTopicsResponse))
        served = 0
        while not validating.done():
            await other.ask(MetadataRequest(()), MetadataResponse)
            served += 1
        assert [topic.error_code for topic in (await validating).topics] == [0, 0, 0]
    # One may come before the request, one after it.
    assert served > 3


async def test_of_concurrent_creations_of_one_name_exactly_one_wins(broker: Broker) -> None:
    async def create() -> int:
        async with connect(broker.port) as wire:
            return (await wire.create("t", partitions=2)).error_code

    codes = await asyncio.gather(*(create() for _ in range(20)))
    assert sorted(codes) == [0] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 19
    async with connect(broker.port) as wire:
        assert (await wire.produce("t", batch(b"v"), partition=1)).base_offset == 0


async def test_each_topic_of_a_request_stands_for_itself(wire: Wire) -> None:
    """W-4.0.2, W-4.7"""
    new = tuple(NewTopic(name, 1, 1, ()) for name in ("a", "b/c", "d"))
    response = await wire.ask(CreateTopicsRequest(new, False), CreateTopicsResponse)
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("a", 0),
        ("b/c", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("d", 0),
    ]
    assert await wire.topics() == ["a", "d"]


async def test_a_topic_made_again_is_another_and_empty(broker: Broker, wire: Wire) -> None:
    """W-4.8"""
    first = await wire.create("t", configs={"retention.bytes": "5000"})
    await wire.produce("t", batch(b"old"))
    assert (await wire.delete("t")).error_code == 0
    gone = await wire.fetch("t", 0)
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await wire.topic("t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    second = await wire.create("t")
    assert second.topic_id != first.topic_id
    assert (await wire.fetch("t", 0)).high_watermark == 0
    assert (await wire.configs("t"))["retention.bytes"] == ("-1", True)
    assert (await wire.produce("t", batch(b"new"))).base_offset == 0
    await broker.restart()
    async with connect(broker.port) as again:
        assert values_of(await again.fetch("t", 0)) == [b"new"]


async def test_deleting_a_missing_topic_is_refused(wire: Wire) -> None:
    """W-4.8"""
    result = await wire.delete("nope")
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nope" in (result.error_message or "")


async def test_create_write_and_delete_leave_no_file_open(broker: Broker, wire: Wire) -> None:
    await wire.create("warm")
    before = open_files()
    for n in range(5):
        await wire.create("t", partitions=3)
        await wire.produce("t", batch(b"%d" % n), partition=2)
        assert values_of(await wire.fetch("t", 0, partition=2)) == [b"%d" % n]
        await wire.delete("t")
    assert open_files() == before
    assert not list(broker.data.glob("t-*"))


async def test_partitions_can_only_be_added(broker: Broker, wire: Wire) -> None:
    """W-4.9"""
    await wire.create("t", partitions=2)
    await wire.produce("t", batch(b"kept"), partition=1)
    for count in (2, 1, 0, -1, 4_001):
        result = await wire.widen("t", count)
        assert result.error_code == ErrorCode.INVALID_PARTITIONS
    assert (await wire.widen("nope", 2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await wire.widen("t", 4)).error_code == 0
    assert (await wire.produce("t", batch(b"new"), partition=3)).base_offset == 0
    await broker.restart()
    async with connect(broker.port) as again:
        assert len((await again.topic("t")).partitions) == 4
        assert values_of(await again.fetch("t", 0, partition=1)) == [b"kept"]
        assert values_of(await again.fetch("t", 0, partition=3)) == [b"new"]


async def test_settings_are_listed_with_where_they_come_from() -> None:
    """W-4.10"""
    topic = {"retention.ms": "1000"}
    async with Broker(topic=topic) as broker, connect(broker.port) as wire:
        await wire.create("t", configs={"segment.bytes": "2048", "durability": None})
        configs = await wire.configs("t")
        assert configs.keys() == TOPIC_CONFIG_KEYS.keys()
        assert configs["segment.bytes"] == ("2048", False)
        assert configs["retention.ms"] == ("1000", True)
        assert configs["durability"] == ("fsync", True)


async def test_settings_change_go_back_and_survive(broker: Broker, wire: Wire) -> None:
    """W-4.11"""
    await wire.create("t", configs={"segment.bytes": "2048"})
    assert (await wire.alter("t", {"retention.ms": "007", "segment.bytes": None})).error_code == 0
    assert (await wire.alter("t", {})).error_code == 0
    assert (await wire.alter("nope", {})).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(2):
        async with connect(broker.port) as again:
            configs = await again.configs("t")
        assert configs["retention.ms"] == ("7", False)
        assert configs["segment.bytes"] == (str(100 << 20), True)
        await broker.restart()


@pytest.mark.parametrize(("before", "after"), [("os", "fsync"), ("fsync", "os")])
async def test_the_high_watermark_never_goes_back_with_the_durability(
    broker: Broker, wire: Wire, before: str, after: str
) -> None:
    """W-4.11: appends in flight across the change are acked and readable all the same."""
    await wire.create("t", configs={"durability": before})
    seen = 0
    async with connect(broker.port) as other:
        for n in range(20):
            producing = asyncio.ensure_future(other.produce("t", batch(b"%d" % n)))
            changed = await wire.alter("t", {"durability": after if n % 2 else before})
            assert changed.error_code == 0
            produced = await producing
            assert (produced.error_code, produced.base_offset) == (0, n)
            high_watermark = (await wire.fetch("t", 0)).high_watermark
            assert high_watermark == n + 1 > seen
            seen = high_watermark


async def is_being_created(wire: Wire, names: list[str]) -> bool:
    topics = [await wire.topic(name) for name in names]
    codes = {partition.error_code for topic in topics for partition in topic.partitions}
    assert codes <= {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    return codes != {0}


async def test_a_hang_up_during_a_creation_leaves_a_whole_topic_or_none(broker: Broker) -> None:
    names = [f"t{n}" for n in range(8)]
    async with connect(broker.port) as wire:
        new = tuple(NewTopic(name, 3, 1, ()) for name in names)
        wire.send(CreateTopicsRequest(new, False))
        await until(lambda: bool(list(broker.data.glob("t*"))))
        wire.reset()
    async with connect(broker.port) as wire:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            while await wire.topics() != names or await is_being_created(wire, names):
                pass
        for name in names:
            assert (await wire.produce(name, batch(b"v"), partition=2)).error_code == 0
    await broker.restart()
    async with connect(broker.port) as wire:
        for name in names:
            assert values_of(await wire.fetch(name, 0, partition=2)) == [b"v"]


async def test_changes_from_many_sides_end_in_one_consistent_state(broker: Broker) -> None:
    async def churn(number: int) -> None:
        async with connect(broker.port) as wire:
            for _ in range(5):
                await wire.create("t", partitions=2)
                await wire.produce("t", batch(b"%d" % number), partition=1)
                await wire.widen("t", 3)
                await wire.alter("t", {"segment.ms": str(number + 1)})
                await wire.delete("t")

    await asyncio.gather(*(churn(number) for number in range(5)))
    async with connect(broker.port) as wire:
        created = await wire.create("t")
        assert created.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        identity = (await wire.topic("t")).topic_id
    await broker.restart()
    async with connect(broker.port) as wire:
        assert (await wire.topic("t")).topic_id == identity
        assert {p.error_code for p in (await wire.topic("t")).partitions} == {0}


async def test_a_stopping_broker_ends_the_change_at_hand_and_begins_no_other(
    broker: Broker, wire: Wire
) -> None:
    names = tuple(f"t{n}" for n in range(50))
    wire.send(CreateTopicsRequest(tuple(NewTopic(n, 1, 1, ()) for n in names), False))
    wire.send(DeleteTopicsRequest(names))
    await until(lambda: bool(list(broker.data.glob("t*"))))
    stopping = asyncio.ensure_future(broker.stop())
    response = await wire.answer(CreateTopicsResponse)
    made = [t.name for t in response.topics if t.error_code == 0]
    assert {t.error_code for t in response.topics} <= {0, ErrorCode.BROKER_STOPPING}
    assert made
    await wire.closed()
    wire.writer.close()
    await stopping
