"""Checks of W-4.27 and W-4.28: deleted records, data directories; and W-4.10.1: brokers."""

from __future__ import annotations

from tests.wire.batches import batch, records_of, split
from tests.wire.check import Target, check, codes, equal, fetch, offset_at, produce, true
from tests.wire.client import Connection
from tests.wire.layouts import Fields

OFFSET_OUT_OF_RANGE = 1


def _delete(wire: Connection, topic: str, offset: int) -> Fields:
    return wire.call("DeleteRecords", [(topic, 0, offset)]).partitions[0]  # type: ignore[no-any-return]


def _filled(target: Target, wire: Connection, cleanup_policy: str = "delete") -> str:
    topic = target.topic(wire, cleanup_policy=cleanup_policy)
    for key in (b"a", b"b", b"c"):
        produce(wire, topic, batch(b"value", key=key))
    return topic


@check("W-4.27.1", "W-4.27")
def deleted_records_cannot_be_read_and_the_others_keep_their_offsets(target: Target) -> None:
    """The log begins at the offset, for Fetch and for ListOffsets."""
    with target.connect() as wire:
        topic = _filled(target, wire)
        deleted = _delete(wire, topic, 2)
        equal((deleted.error_code, deleted.low_watermark), (0, 2), "the result")
        equal(offset_at(wire, topic, -2), (0, 2, -1), "the earliest offset")
        refused = fetch(wire, topic, 1)
        equal((refused.error_code, refused.log_start_offset), (OFFSET_OUT_OF_RANGE, 2), "below it")
        found = [r.offset for b in split(fetch(wire, topic, 2).records) for r in records_of(b)]
        equal(found, [2], "offsets that are left")


@check("W-4.27.1")
def a_start_never_goes_back(target: Target) -> None:
    """A lower offset changes nothing; -1 leaves no record that can be read."""
    with target.connect() as wire:
        topic = _filled(target, wire)
        found = [_delete(wire, topic, offset) for offset in (2, 0, 2, -1)]
        equal([each.low_watermark for each in found], [2, 2, 2, 3], "low watermarks")
        equal(produce(wire, topic, batch(b"d")).base_offset, 3, "the next offset")


@check("W-4.27.2", "W-6.5")
def what_cannot_be_deleted_is_refused(target: Target) -> None:
    """Beyond the high watermark, below -1, compacted topics, and those of the broker."""
    with target.connect() as wire:
        topic = _filled(target, wire)
        compacted = _filled(target, wire, cleanup_policy="compact")
        both = _filled(target, wire, cleanup_policy="compact,delete")
        wire.call("FindCoordinator", [target.name("group")])
        asked = [(topic, 4), (compacted, 1), ("__consumer_offsets", 0), (target.name(), 0)]
        partitions = [(name, 0, offset) for name, offset in [*asked, (both, 1)]]
        found = wire.call("DeleteRecords", partitions).partitions
        equal(codes(found), [OFFSET_OUT_OF_RANGE, 44, 17, 3, 0], "codes")
        equal([each.low_watermark for each in found], [-1] * 4 + [1], "low watermarks")
        equal(_delete(wire, topic, -2).error_code, OFFSET_OUT_OF_RANGE, "-2")
        equal(offset_at(wire, topic, -2), (0, 0, -1), "the earliest offset")


@check("W-4.28", "W-4.28.1")
def the_sizes_of_partitions_are_those_of_their_batches(target: Target) -> None:
    """A topic that is not there has no entry; null asks for all."""
    with target.connect() as wire:
        topic, made = target.topic(wire, partitions=2), batch(b"x" * 100)
        for _ in range(3):
            produce(wire, topic, made)
        found = wire.call("DescribeLogDirs", [topic, target.name()]).log_dirs
        sizes = [
            (p.topic, p.partition, p.error_code, p.size_bytes, p.offset_lag)
            for directory in found
            for p in directory.partitions
        ]
        equal(sizes, [(topic, 0, 0, 3 * len(made), 0), (topic, 1, 0, 0, 0)], "sizes")
        for directory in found:
            true(directory.path.startswith("/"), f"path {directory.path}")
            true(directory.usable_bytes <= directory.total_bytes, "usable above total")
        every = wire.call("DescribeLogDirs", None).log_dirs
        true(topic in {p.topic for each in every for p in each.partitions}, "not among all")
        none = wire.call("DescribeLogDirs", []).log_dirs
        equal([p for each in none for p in each.partitions], [], "no topics")


@check("W-4.10.1")
def a_broker_describes_its_own_settings(target: Target) -> None:
    """-1 is the broker that is asked, another id is refused, and all are read-only."""
    with target.connect() as wire:
        mine, other = wire.call("DescribeConfigs", [], [-1, 2**31 - 1]).brokers
        equal(codes([mine, other]), [0, 42], "codes")
        true(mine.configs, "no settings")
        for entry in mine.configs:
            true(entry.is_read_only and entry.doc, f"{entry.name} without meaning")
            sources = ("flag", "environment", "file", "argument", "default")
            true(entry.source in sources, f"{entry.name} from {entry.source}")
            equal(entry.is_default, entry.source == "default", entry.name)
        again = wire.call("DescribeConfigs", [], [mine.node_id]).brokers[0]
        equal(len(again.configs), len(mine.configs), "the same by its id")


@check("W-4.10.1")
def a_topics_setting_says_where_it_comes_from(target: Target) -> None:
    """topic, broker or default."""
    with target.connect() as wire:
        topic = target.topic(wire, segment_bytes="4096")
        entries = wire.call("DescribeConfigs", [topic], []).topics[0].configs
        found = {entry.name: entry.source for entry in entries}
        equal(found["segment.bytes"], "topic", "segment.bytes")
        true(set(found.values()) <= {"topic", "broker", "default"}, f"{set(found.values())}")
