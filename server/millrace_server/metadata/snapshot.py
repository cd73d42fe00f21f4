"""The content of a snapshot: the image as record batches, between a header and a footer (KIP-630).

The batches are those of a segment, each with its CRC, so the same tools read both. A snapshot is
whole if every batch is, the header names the offset in the file's name, and the footer counts the
records; otherwise it is torn.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace_protocol.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityName,
    RegisterBrokerRecord,
    RemovedTopicsRecord,
    ScramCredentialRecord,
    ScramSecretRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    VotersRecord,
    encode_metadata_record,
)
from millrace_protocol.records import CorruptBatch, check_batch, decode_records, encode_batch
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage, Topic
from millrace_server.metadata.records import decode_record

BATCH_RECORDS = 1_000
"""Records of one batch: some 100 KB."""
_NO_BROKER = -1


class TornSnapshot(Exception):
    """The snapshot is not what was written."""


def encode_snapshot(image: ClusterImage, *, now_ms: int) -> bytes:
    """The bytes of an image's snapshot."""
    records: list[MetadataRecord] = [SnapshotHeaderRecord(image.end_offset), *_records(image)]
    records.append(SnapshotFooterRecord(len(records)))
    batches = []
    for first in range(0, len(records), BATCH_RECORDS):
        values = [encode_metadata_record(r) for r in records[first : first + BATCH_RECORDS]]
        batches.append(encode_batch(values, timestamps_ms=now_ms, base_offset=first))
    return b"".join(batches)


def decode_snapshot(data: bytes, *, end_offset: int) -> ClusterImage:
    """The image of a snapshot that is named for `end_offset`.

    Raises `TornSnapshot` when it is damaged, and `UnreadableMetadata` when a newer broker wrote it.
    """
    try:
        records = list(_read(data))
    except CorruptBatch as error:
        raise TornSnapshot(str(error)) from error
    if not records or records[0] != SnapshotHeaderRecord(end_offset):
        raise TornSnapshot(f"it does not begin with the header of offset {end_offset}")
    if records[-1] != SnapshotFooterRecord(len(records) - 1):
        raise TornSnapshot("it does not end with its footer")
    delta = Delta(ClusterImage())
    for record in records[1:-1]:
        delta.replay(record)
    return delta.image(end_offset)


def _read(data: bytes) -> Iterator[MetadataRecord]:
    position = 0
    while position < len(data):
        header = check_batch(data, position)
        for record in decode_records(data, position):
            yield decode_record(record[3])
        position += header.size_bytes


def _records(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Records that make the image, in an order in which each can follow."""
    if image.cluster_id is not None:
        yield ClusterRecord(image.cluster_id, image.feature_level)
    if image.voters:
        yield VotersRecord(image.voters)
    for broker in image.brokers.values():
        yield RegisterBrokerRecord(
            broker.broker_id,
            broker.epoch,
            broker.incarnation_id,
            broker.listeners[0].host,
            broker.listeners[0].port,
            broker.rack,
            broker.directory_ids,
            broker.broker_host,
            broker.broker_port,
            broker.listeners,
        )
        if not broker.is_fenced or broker.in_controlled_shutdown:
            yield BrokerRegistrationChangeRecord(
                broker.broker_id, broker.epoch, broker.is_fenced, broker.in_controlled_shutdown
            )
    if image.removed:
        yield RemovedTopicsRecord(tuple(image.removed))
    for topic in image.topics.values():
        yield from _topic_records(topic)
    for entry in image.acls.entries:
        yield AccessControlEntryRecord(*entry)
    yield from _user_records(image)
    yield from _quota_records(image)
    if image.next_producer_id:
        yield ProducerIdsRecord(_NO_BROKER, _NO_BROKER, image.next_producer_id)


def _user_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    if image.scram_secret:
        yield ScramSecretRecord(image.scram_secret)
    for user, credentials in image.users.items():
        for each in credentials.values():
            yield ScramCredentialRecord(
                user,
                each.mechanism,
                each.salt,
                each.stored_key,
                each.server_key,
                each.iterations,
            )


def _quota_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    for entity, values in image.quotas.entities.items():
        parts = tuple(QuotaEntityName(*part) for part in entity)
        for key, value in values.items():
            yield ClientQuotaRecord(parts, key, value, False)


def _topic_records(topic: Topic) -> Iterator[MetadataRecord]:
    yield TopicRecord(topic.name, topic.topic_id)
    for number, partition in enumerate(topic.partitions):
        yield PartitionRecord(
            topic.topic_id,
            number,
            partition.replicas,
            partition.isr,
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            partition.directory_ids,
            partition.elr,
            partition.last_known_elr,
            partition.adding,
            partition.removing,
            partition.loss_epoch,
        )
    for name in sorted(topic.configs):
        yield ConfigRecord(topic.topic_id, name, topic.configs[name])
