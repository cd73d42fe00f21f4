"""Checks of W-4.7 to W-4.11: topics and their settings."""

from __future__ import annotations

import uuid

from tests.wire.batches import batch
from tests.wire.check import Target, check, codes, equal, produce, true
from tests.wire.client import Connection

NO_ID = uuid.UUID(int=0)
SETTINGS = {
    "cleanup.policy",
    "delete.retention.ms",
    "durability",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
    "unclean.leader.election.enable",
}


def configs_of(wire: Connection, topic: str) -> dict[str, tuple[str, bool]]:
    """Value in force of each setting, and whether it is the default."""
    found = wire.call("DescribeConfigs", [topic], []).topics[0]
    equal(found.error_code, 0, "DescribeConfigs")
    return {entry.name: (entry.value, entry.is_default) for entry in found.configs}


@check("W-4.7")
def a_topic_is_created_with_an_id_and_the_brokers_defaults(target: Target) -> None:
    """-1 asks for the broker's defaults; the answer names what was made."""
    with target.connect() as wire:
        name = target.name()
        created = wire.call("CreateTopics", [(name, -1, -1, (), ())], False).topics[0]
        equal((created.error_code, created.error_message), (0, None), "the result")
        true(created.partitions >= 1 and created.replication_factor >= 1, "counts below 1")
        true(created.topic_id != NO_ID, "no topic id")
        found = wire.call("Metadata", [name]).topics[0]
        equal((found.topic_id, len(found.partitions)), (created.topic_id, created.partitions), name)


@check("W-4.7")
def topics_are_created_each_for_itself(target: Target) -> None:
    """One may fail and another not; a failed result has no id and no counts."""
    with target.connect() as wire:
        there, name = target.topic(wire), target.name()
        new = [
            (there, 1, -1, (), ()),
            (name, 2, 1, (), ()),
            (target.name(), 0, -1, (), ()),
            (target.name(), 1, 0, (), ()),
            (target.name(), 1, 99, (), ()),
            (target.name(), 1, -1, [("no.such.setting", "1")], ()),
            (target.name(), 1, -1, [("retention.ms", "soon")], ()),
        ]
        results = wire.call("CreateTopics", new, False).topics
        equal(codes(results), [36, 0, 37, 38, 38, 40, 40], "codes")
        failed = {(r.topic_id, r.partitions, r.replication_factor) for r in results if r.error_code}
        equal(failed, {(NO_ID, -1, -1)}, "failed results")
        equal(len(wire.call("Metadata", [name]).topics[0].partitions), 2, "partitions")


@check("W-4.7", "W-4.9")
def assignments_say_where_the_replicas_are(target: Target) -> None:
    """A broker that is not there, an empty list and a number beside them are refused."""
    with target.connect() as wire:
        here = wire.call("Metadata", []).brokers[0].node_id
        name = target.name()
        new = [
            (name, -1, -1, (), [([here],), ([here],)]),
            (target.name(), -1, -1, (), [([here + 99],)]),
            (target.name(), -1, -1, (), [([here, here],)]),
            (target.name(), -1, -1, (), [([],)]),
            (target.name(), 1, -1, (), [([here],)]),
            (target.name(), -1, 1, (), [([here],)]),
        ]
        found = codes(wire.call("CreateTopics", new, False).topics)
        equal(found, [0, 39, 39, 39, 42, 42], "CreateTopics")
        for count, to, code in (
            (3, [([here + 99],)], 39),
            (3, [([here],), ([here],)], 39),
            (3, [([here],)], 0),
        ):
            found = codes(wire.call("CreatePartitions", [(name, count, to)], False).topics)
            equal(found, [code], f"{to}")
        partitions = wire.call("Metadata", [name]).topics[0].partitions
        equal([p.replicas for p in partitions], [[here]] * 3, "replicas")


@check("W-4.7", "W-4.9", "W-4.11")
def validate_only_changes_nothing(target: Target) -> None:
    """The answer is as if, and no topic, partition or setting is changed."""
    with target.connect() as wire:
        topic, name = target.topic(wire), target.name()
        equal(codes(wire.call("CreateTopics", [(name, 1, -1, (), ())], True).topics), [0], "create")
        equal(
            codes(wire.call("CreatePartitions", [(topic, 9, ())], True).topics), [0], "partitions"
        )
        change = [(topic, [("segment.bytes", "2048")])]
        equal(codes(wire.call("AlterConfigs", change, True).topics), [0], "alter")
        found = wire.call("Metadata", [name, topic]).topics
        equal((found[0].error_code, len(found[1].partitions)), (3, 1), "after it")
        true(configs_of(wire, topic)["segment.bytes"][1], "segment.bytes was changed")


@check("W-4.8")
def a_topic_made_again_has_another_id_and_begins_at_0(target: Target) -> None:
    """The records of a deleted topic are gone."""
    with target.connect() as wire:
        topic = target.topic(wire)
        produce(wire, topic, batch(b"a", b"b"))
        before = wire.call("Metadata", [topic]).topics[0].topic_id
        missing = target.name()
        equal(codes(wire.call("DeleteTopics", [topic, missing]).topics), [0, 3], "delete")
        equal(wire.call("Metadata", [topic]).topics[0].error_code, 3, "the deleted topic")
        again = wire.call("CreateTopics", [(topic, 1, -1, (), ())], False).topics[0]
        true(again.topic_id != before, "the id is the same")
        equal(produce(wire, topic, batch(b"c")).base_offset, 0, "the first offset")


@check("W-4.9")
def a_topic_gets_more_partitions_and_never_fewer(target: Target) -> None:
    """The count is that afterwards, and more than there are; records keep their partition."""
    with target.connect() as wire:
        topic = target.topic(wire, partitions=2)
        produce(wire, topic, batch(b"a"))
        asked = [(topic, 4, ())]
        equal(codes(wire.call("CreatePartitions", asked, False).topics), [0], "to 4")
        for count in (4, 3, 0, -1):
            found = codes(wire.call("CreatePartitions", [(topic, count, ())], False).topics)
            equal(found, [37], f"to {count}")
        found = codes(wire.call("CreatePartitions", [(target.name(), 2, ())], False).topics)
        equal(found, [3], "of no topic")
        partitions = wire.call("Metadata", [topic]).topics[0].partitions
        equal([p.partition for p in partitions], [0, 1, 2, 3], "partitions")
        end = wire.call("ListOffsets", [(topic, 0, -1)]).partitions[0].offset
        equal(end, 1, "the end of partition 0")


@check("W-4.30", "W-4.30.2", "W-4.30.3", "W-4.31")
def replicas_that_cannot_be_are_refused(target: Target) -> None:
    """Each partition for itself; the replicas that a partition has already are a success."""
    with target.connect() as wire:
        topic, missing = target.topic(wire), target.name()
        own = wire.call("Metadata", [topic]).topics[0].partitions[0].replicas
        for where, replicas, code in (
            ((topic, 0), own, 0),
            ((topic, 0), [], 39),
            ((topic, 0), [own[0], own[0]], 39),
            ((topic, 0), [2**31 - 1], 39),
            ((topic, 0), None, 85),
            ((topic, 1), own, 3),
            ((missing, 0), own, 3),
        ):
            asked = [(*where, replicas)]
            found = wire.call("AlterPartitionReassignments", asked, False).partitions
            equal(codes(found), [code], f"{where} on {replicas}")
        for topics in ([topic, missing], [missing]):
            found = wire.call("ListPartitionReassignments", topics).partitions
            equal(found, [], "what is being reassigned")


@check("W-4.32", "W-4.32.1")
def a_leader_that_is_there_is_not_elected(target: Target) -> None:
    """ELECTION_NOT_NEEDED, clean or not; null names no such partition."""
    with target.connect() as wire:
        topic, missing = target.topic(wire), target.name()
        for is_unclean in (False, True):
            asked = [(topic, 0), (topic, 1), (missing, 0)]
            found = wire.call("ElectLeaders", asked, is_unclean).partitions
            equal(codes(found), [84, 3, 3], "codes")
            equal([each.leader_id for each in found], [-1] * 3, "leaders")
        found = wire.call("ElectLeaders", None, False).partitions
        equal([each.error_code for each in found if each.topic == topic], [], "of the topic")


@check("W-4.33", "W-4.33.1")
def a_broker_that_is_not_there_is_not_retired(target: Target) -> None:
    """BROKER_ID_NOT_REGISTERED."""
    with target.connect() as wire:
        found = wire.call("RetireBroker", 2**31 - 1)
        equal((found.error_code, found.replicas, found.is_retired), (102, -1, False), "result")


@check("W-4.10")
def every_setting_is_described(target: Target) -> None:
    """All settings by name, with the value in force and whether the topic sets it."""
    with target.connect() as wire:
        found = configs_of(wire, target.topic(wire, segment_bytes="4096"))
        equal(SETTINGS - set(found), set(), "settings that are missing")
        equal(found["segment.bytes"], ("4096", False), "segment.bytes")
        equal(found["retention.ms"], ("-1", False), "retention.ms")
        true(found["durability"][1], "durability is the topic's own")
        missing = wire.call("DescribeConfigs", [target.name()], []).topics[0]
        equal((missing.error_code, missing.configs), (3, []), "no topic")


@check("W-4.10")
def values_out_of_range_are_refused(target: Target) -> None:
    """Each setting has a type and a range; INVALID_CONFIG is for the others."""
    bad = [
        ("retention.ms", "-2"),
        ("segment.bytes", "1023"),
        ("segment.ms", "0"),
        ("max.message.bytes", "60"),
        ("max.message.bytes", "2147483648"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("durability", "memory"),
        ("cleanup.policy", "shred"),
        ("message.timestamp.type", "createtime"),
        ("retention.bytes", ""),
    ]
    with target.connect() as wire:
        for name, value in bad:
            new = [(target.name(), 1, -1, [(name, value)], ())]
            equal(codes(wire.call("CreateTopics", new, True).topics), [40], f"{name}={value}")
        good = [("cleanup.policy", "compact,delete"), ("min.cleanable.dirty.ratio", "0.1")]
        new = [(target.name(), 1, -1, good, ())]
        equal(codes(wire.call("CreateTopics", new, True).topics), [0], "values in range")


@check("W-4.11")
def changes_of_a_topic_are_made_all_or_none(target: Target) -> None:
    """One bad value refuses all of that topic's; null goes back to the default."""
    with target.connect() as wire:
        topic = target.topic(wire, segment_bytes="4096")
        change = [(topic, [("segment.bytes", "8192"), ("segment.ms", "-5")])]
        equal(codes(wire.call("AlterConfigs", change, False).topics), [40], "one bad value")
        equal(configs_of(wire, topic)["segment.bytes"], ("4096", False), "segment.bytes")
        good = [(topic, [("segment.bytes", None), ("segment.ms", "5000")])]
        equal(codes(wire.call("AlterConfigs", good, False).topics), [0], "good values")
        found = configs_of(wire, topic)
        true(found["segment.bytes"][1], "null does not go back to the default")
        equal(found["segment.ms"], ("5000", False), "segment.ms")
        equal(found["retention.ms"], ("-1", False), "a setting that was not named")
        missing = [(target.name(), ())]
        equal(codes(wire.call("AlterConfigs", missing, False).topics), [3], "no topic")
