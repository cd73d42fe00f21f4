"""A data directory made of a backup's records, in which a broker starts as a cluster of one.

Owns what such a directory must hold, and the order in which it is written. Refuses to know backups:
the caller brings topics and batches. Each log takes its batches as a follower takes those of its
leader, so offsets, leader epochs, gaps and the state of producers are what they were.

    meta.properties
    orders-0/ ...                     every partition, durable
    __cluster_metadata-0/             topics, settings, partitions, the only voter
    __cluster_metadata-0/partition.json    the last file: a broker starts from here on

A directory that lacks the last file holds partitions without metadata, and no broker starts on it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millrace_protocol.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuorumVoter,
    TopicRecord,
    VotersRecord,
    encode_metadata_record,
)
from millrace_protocol.records import batch_ranges, encode_batch, read_header
from millrace_server.controller.metadata_storage import (
    CHANGE_BYTES_MAX,
    METADATA_DIRECTORY,
    METADATA_TOPIC_ID,
)
from millrace_server.environment.seams import Disk, ReadBuffer
from millrace_server.log import LogConfig, PartitionLog
from millrace_server.partitions.storage import (
    Identity,
    log_config,
    partition_directory,
    write_identity,
)
from millrace_server.quorum.identity import DirectoryIdentity
from millrace_server.quorum.identity import write_identity as write_directory_identity
from millrace_server.topic_config import TopicConfig

FLUSH_BYTES: Final = 64 << 20
"""Bytes of a partition that are appended between two syncs."""
PRODUCER_IDS_SKIPPED: Final = 1_000_000
"""Ids behind the highest one in the records are not given out: a producer of the old cluster may
hold one of them and have written nothing yet."""
_NO_BROKER = -1


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """The batches of a partition in their order, in parts that hold whole batches.

    Records before `start_offset` are deleted. An empty log begins and ends there.
    """

    start_offset: int
    batches: Iterable[ReadBuffer]


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic with its own settings, as text by name; its partitions by number."""

    name: str
    topic_id: uuid.UUID
    configs: Mapping[str, str]
    partitions: Sequence[RestoredPartition]


class DirectoryWriter:
    """Writes the topics, one after the other; `finish` makes the directory one of a broker.

    Blocking. Every method raises `OSError` and the errors of the batches' source; `write_topic`
    also `CorruptBatch` and `UnexpectedBatch` for batches that are not those of a log. The caller
    removes what was written then.
    """

    def __init__(self, disk: Disk, *, node_id: int, directory_id: uuid.UUID, now_ms: int) -> None:
        """`disk` is an empty directory, which belongs to the broker `node_id` from then on."""
        self._disk = disk
        self._node_id = node_id
        self._directory_id = directory_id
        self._now_ms = now_ms
        self._records: list[list[MetadataRecord]] = []
        self._producer_id_max = -1
        write_directory_identity(disk, DirectoryIdentity(node_id, directory_id))

    def write_topic(self, topic: RestoredTopic) -> None:
        """Makes the partitions of a topic durable. Raises `ApiError` for settings it cannot have.

        The broker is their only replica and leads them, in an epoch above those of the batches.
        """
        own = TopicConfig({}, {}).changed(topic.configs)
        config = log_config(TopicConfig(own, {}))
        records: list[MetadataRecord] = [TopicRecord(topic.name, topic.topic_id)]
        for number, partition in enumerate(topic.partitions):
            directory = partition_directory(topic.name, number)
            leader_epoch = self._write_partition(directory, config, partition)
            write_identity(self._disk, directory, Identity(str(topic.topic_id), number))
            records.append(
                PartitionRecord(
                    topic.topic_id,
                    number,
                    replicas=(self._node_id,),
                    isr=(self._node_id,),
                    leader=self._node_id,
                    leader_epoch=leader_epoch + 1,
                    partition_epoch=0,
                    directory_ids=(self._directory_id,),
                )
            )
        records += [ConfigRecord(topic.topic_id, name, own[name]) for name in sorted(own)]
        self._records.append(records)

    def finish(self) -> None:
        """Writes the metadata log, and its identity as the last file."""
        voter = QuorumVoter(self._node_id, self._directory_id, "", 0)
        batches: list[list[MetadataRecord]] = [[VotersRecord((voter,))], *self._records]
        if self._producer_id_max >= 0:
            next_id = self._producer_id_max + 1 + PRODUCER_IDS_SKIPPED
            batches.append([ProducerIdsRecord(_NO_BROKER, _NO_BROKER, next_id)])
        config = LogConfig(retention_ms=-1, max_message_bytes=CHANGE_BYTES_MAX)
        log = PartitionLog.create(self._disk, METADATA_DIRECTORY, config, sync_parent=False)
        try:
            for records in batches:
                values = [encode_metadata_record(record) for record in records]
                batch = bytearray(encode_batch(values, timestamps_ms=self._now_ms))
                log.append(batch, read_header(batch), now_ms=self._now_ms)
            log.close()
        finally:
            log.discard()
        # The names of the partitions, before the file that stands for all of them.
        self._disk.sync_directory("")
        write_identity(self._disk, METADATA_DIRECTORY, Identity(METADATA_TOPIC_ID, 0))

    def _write_partition(
        self, directory: str, config: LogConfig, partition: RestoredPartition
    ) -> int:
        """Returns the latest leader epoch of the batches, 0 if there are none."""
        log = PartitionLog.create(self._disk, directory, config, sync_parent=False)
        try:
            unsynced_bytes = 0
            for batches in partition.batches:
                if not log.size_bytes:
                    log.begin_at(read_header(batches).base_offset)
                log.append_as_follower(batches, now_ms=self._now_ms)
                self._note_producers(batches)
                unsynced_bytes += len(batches)
                if unsynced_bytes >= FLUSH_BYTES:
                    log.flush()
                    unsynced_bytes = 0
            if not log.size_bytes:
                log.begin_at(partition.start_offset)
            log.flush()
            log.advance_start(partition.start_offset, high_watermark=log.end_offset)
            log.close()
            return max(0, log.leader_epoch)
        finally:
            log.discard()

    def _note_producers(self, batches: ReadBuffer) -> None:
        for position, _, _, _ in batch_ranges(batches):
            self._producer_id_max = max(
                self._producer_id_max, read_header(batches, position).producer_id
            )
