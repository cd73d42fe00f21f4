"""What the metadata of a large cluster costs: the controller's rules and the image, in one process.

Owns a cluster of 100 brokers that is made by the rules themselves: registrations, topics of ten
partitions with three replicas. Measures CPU and bytes of what one controller, and each broker that
replays the metadata log, does at that size. No broker process and no network take part.
"""

from __future__ import annotations

import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from benchmarks.results import Fact, Row
from benchmarks.samples import Spread
from benchmarks.session import Session
from millrace_protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisteredListener,
    encode_metadata_record,
)
from millrace_server.metadata.broker_registrations import (
    BrokerStart,
    fence_broker,
    register_broker,
)
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.isr_changes import IsrChange, change_isrs
from millrace_server.metadata.records import decode_record
from millrace_server.metadata.snapshot import decode_snapshot, encode_snapshot
from millrace_server.metadata.topics import TopicChanges, TopicDefaults

GROUP = "growth"
BROKERS = 100
REPLICAS = 3
PARTITIONS_OF_A_TOPIC = 10
_CLUSTER = uuid.UUID(int=1)
T = TypeVar("T")


def run(session: Session) -> Iterator[Row]:
    """Facts of a cluster with `growth_partitions`; times are CPU times."""
    topics = session.scale.growth_partitions // PARTITIONS_OF_A_TOPIC
    partitions = topics * PARTITIONS_OF_A_TOPIC
    session.say(f"growth: {BROKERS} brokers, {partitions} partitions")
    size = f"{BROKERS} brokers, {partitions:,} partitions, three replicas each"

    tracemalloc.start()
    image = _with_brokers()
    image, _ = _with_topics(image, topics)
    image_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    yield _fact("Image in memory", "bytes per partition", [image_bytes / partitions], size)

    rounds = session.scale.rounds
    start = image.end_offset
    created = [_timed(lambda: _with_topics(image, 1, first=topics))[0] for _ in range(rounds)]
    yield _fact("Create a topic of ten partitions", "ms", created, "rules and new image")

    writes, snapshot = _timings(rounds, lambda: encode_snapshot(image, now_ms=0))
    yield _fact("Snapshot on the disk", "bytes per partition", [len(snapshot) / partitions], size)
    yield _fact("Write the snapshot", "ms", writes, "by each broker, now and then")
    reads, _ = _timings(rounds, lambda: decode_snapshot(snapshot, end_offset=start))
    yield _fact("Read the snapshot", "ms", reads, "by a broker that starts")

    fences, records = _timings(rounds, lambda: fence_broker(image, {}, 1))
    yield _fact("Fence a broker", "ms", fences, f"the rules: {len(records):,} records")
    values = [encode_metadata_record(record) for record in records]
    replays, _ = _timings(rounds, lambda: _after(image, [decode_record(each) for each in values]))
    yield _fact("Replay what fenced the broker", "ms", replays, "on every broker")

    changes, _ = _timings(rounds, lambda: _isr_change(image))
    yield _fact("Change an ISR", "ms", changes, "the rules")
    one = _isr_change(image)
    images, _ = _timings(rounds, lambda: _after(image, one))
    yield _fact("Replay one change", "ms", images, "on every broker, a new image")


def _fact(title: str, unit: str, values: Sequence[float], note: str) -> Fact:
    return Fact(GROUP, title, unit, Spread.of(list(values)), note=note)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds of CPU time, and what the work gave."""
    started = time.process_time()
    found = work()
    return (time.process_time() - started) * 1_000, found


def _timings(rounds: int, work: Callable[[], T]) -> tuple[list[float], T]:
    found = [_timed(work) for _ in range(rounds)]
    return [ms for ms, _ in found], found[-1][1]


def _after(image: ClusterImage, records: Sequence[MetadataRecord]) -> ClusterImage:
    """The image behind the records."""
    delta = Delta(image)
    for record in records:
        delta.replay(record)
    return delta.image(image.end_offset + len(records))


def _with_brokers() -> ClusterImage:
    image = ClusterImage()
    for broker_id in range(BROKERS):
        address = f"broker-{broker_id}.internal"
        start = BrokerStart(
            broker_id,
            uuid.UUID(int=broker_id + 1),
            (RegisteredListener("plain", address, 9092, False),),
            f"rack-{broker_id % 3}",
            (uuid.UUID(int=1_000 + broker_id),),
            address,
            9093,
        )
        image = _after(
            image, register_broker(image, {}, start, cluster_id=_CLUSTER, has_session=False)
        )
        epoch = image.brokers[broker_id].epoch
        image = _after(image, [BrokerRegistrationChangeRecord(broker_id, epoch, is_fenced=False)])
    return image


def _with_topics(
    image: ClusterImage, count: int, *, first: int = 0
) -> tuple[ClusterImage, list[MetadataRecord]]:
    """The image with more topics, whose names and ids begin at `first`; and their records."""
    partitions = (first + count) * PARTITIONS_OF_A_TOPIC
    rules = TopicChanges(TopicDefaults(PARTITIONS_OF_A_TOPIC, REPLICAS, {}, partitions))
    records: list[MetadataRecord] = []
    for number in range(first, first + count):
        records += rules.create_topic(
            image,
            f"topic-{number}",
            topic_id=uuid.UUID(int=1_000_000 + number),
            partitions=-1,
            replication_factor=-1,
            configs={},
            start=number * PARTITIONS_OF_A_TOPIC,
        )
    return _after(image, records), records


def _isr_change(image: ClusterImage) -> Sequence[MetadataRecord]:
    """The records that take a replica out of the ISR of one partition."""
    topic = image.topics["topic-0"]
    partition = topic.partitions[0]
    isr = tuple((broker_id, -1) for broker_id in partition.isr[:-1])
    wanted = IsrChange(topic.topic_id, 0, partition.leader_epoch, partition.partition_epoch, isr)
    epoch = image.brokers[partition.leader].epoch
    decided = change_isrs(image, {}, [wanted], broker_id=partition.leader, broker_epoch=epoch)
    return decided.records
