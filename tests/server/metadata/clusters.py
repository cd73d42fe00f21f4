"""Images of small clusters, in the state that a test needs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from millrace_protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisteredListener,
)
from millrace_server.metadata.broker_registrations import BrokerStart, register_broker
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage, PartitionRegistration, Topic

CLUSTER = uuid.UUID(int=1)
TOPIC = uuid.UUID(int=2)
OS = {"durability": "os"}
"""Settings of a topic whose records a kill may lose."""


def directory(broker_id: int) -> uuid.UUID:
    return uuid.UUID(int=100 + broker_id)


def start_of(
    broker_id: int,
    *,
    incarnation: int = 1,
    rack: str | None = None,
    previous_epoch: int = -1,
    directory_id: uuid.UUID | None = None,
) -> BrokerStart:
    """What a process of a broker says when it starts."""
    return BrokerStart(
        broker_id,
        uuid.UUID(int=incarnation),
        (RegisteredListener("plain", "localhost", 9092, False),),
        rack,
        (directory_id or directory(broker_id),),
        "localhost",
        9093,
        previous_epoch,
    )


def after(image: ClusterImage, records: Sequence[MetadataRecord]) -> ClusterImage:
    """The image behind the records, with the end offset that the log has then."""
    delta = Delta(image)
    for record in records:
        delta.replay(record)
    return delta.image(image.end_offset + len(records))


def cluster(*broker_ids: int, racks: Mapping[int, str] | None = None) -> ClusterImage:
    """A cluster of brokers that are in service."""
    image = ClusterImage()
    for broker_id in broker_ids:
        start = start_of(broker_id, rack=(racks or {}).get(broker_id))
        records = register_broker(image, {}, start, cluster_id=CLUSTER, has_session=False)
        image = after(image, records)
        epoch = image.brokers[broker_id].epoch
        unfenced = BrokerRegistrationChangeRecord(broker_id, epoch, is_fenced=False)
        image = after(image, [unfenced])
    return image


def partition(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    *,
    leader: int | None = None,
    elr: tuple[int, ...] = (),
    last_known_elr: tuple[int, ...] = (),
) -> PartitionRegistration:
    """A partition whose replicas are created; the leader is the first of the ISR unless named."""
    return PartitionRegistration(
        replicas,
        isr,
        isr[0] if leader is None else leader,
        5,
        9,
        tuple(directory(replica) for replica in replicas),
        elr,
        last_known_elr,
    )


def with_topic(
    image: ClusterImage,
    *partitions: PartitionRegistration,
    configs: Mapping[str, str] | None = None,
    name: str = "t",
    topic_id: uuid.UUID = TOPIC,
) -> ClusterImage:
    """The image and a topic with these partitions."""
    topic = Topic(name, topic_id, partitions, MappingProxyType(dict(configs or {})))
    return replace(
        image,
        topics=MappingProxyType({**image.topics, name: topic}),
        names=MappingProxyType({**image.names, topic_id: name}),
    )


def inactive(image: ClusterImage, *broker_ids: int, stopping: bool = False) -> ClusterImage:
    """The image with brokers fenced, or shutting down; partitions as they are."""
    for broker_id in broker_ids:
        epoch = image.brokers[broker_id].epoch
        record = BrokerRegistrationChangeRecord(broker_id, epoch, not stopping, stopping)
        image = after(image, [record])
    return image


def seen(image: ClusterImage, number: int = 0) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Leader, ISR and ELR of a partition of the topic `t`."""
    found = image.topics["t"].partitions[number]
    return found.leader, found.isr, found.elr
