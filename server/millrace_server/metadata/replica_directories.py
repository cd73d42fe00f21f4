"""In which directory a broker has created its replicas (KIP-858)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    LEADER_UNCHANGED,
    MetadataRecord,
    PartitionChangeRecord,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.broker_registrations import registered_broker
from millrace_server.metadata.image import ClusterImage


def assign_directories(
    image: ClusterImage,
    broker_id: int,
    directory_id: uuid.UUID,
    created: Iterable[tuple[uuid.UUID, int]],
    *,
    broker_epoch: int,
) -> list[MetadataRecord]:
    """Records that say in which directory a broker has created its replicas. Raises `ApiError`.

    `created` are topic ids and partition numbers. Topics that are deleted meanwhile are left out,
    and replicas that the broker no longer has.
    """
    broker = registered_broker(image, broker_id, broker_epoch)
    if directory_id not in broker.directory_ids:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} is not registered with the directory {directory_id}",
        )
    records: list[MetadataRecord] = []
    for topic_id, number in created:
        topic = image.topic_by_id(topic_id)
        if topic is None or not 0 <= number < topic.partition_count:
            continue
        partition = topic.partitions[number]
        if broker_id not in partition.replicas or partition.is_created(broker_id):
            continue
        directories = tuple(
            directory_id if replica == broker_id else known
            for replica, known in zip(partition.replicas, partition.directory_ids, strict=True)
        )
        records.append(
            PartitionChangeRecord(topic_id, number, None, None, LEADER_UNCHANGED, directories)
        )
    return records
