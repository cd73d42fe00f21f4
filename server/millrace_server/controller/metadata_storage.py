"""The directory of the metadata log: found or made at start, before anything else is known."""

from __future__ import annotations

import uuid

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Disk
from millrace_server.log import LogConfig, PartitionLog
from millrace_server.log.config import SEGMENT_BYTES_MAX
from millrace_server.metadata.image import ClusterImage
from millrace_server.partitions.storage import (
    IDENTITY_FILE,
    create_logs,
    is_partition,
    open_log,
    partition_directory,
)
from millrace_server.quorum.metadata_log import METADATA_TOPIC

METADATA_TOPIC_ID = str(uuid.UUID(int=1))
"""The metadata topic has no record of its creation, so its identity is fixed."""
METADATA_DIRECTORY = partition_directory(METADATA_TOPIC, 0)
CHANGE_BYTES_MAX = 64 << 20
"""The largest change of the metadata, which is one batch: a topic of 500,000 partitions."""


def open_metadata_log(disk: Disk, now_ms: int, snapshot_bytes: int) -> PartitionLog:
    """The metadata log, recovered or new. Blocking.

    Its segments are as large as what it grows by from one snapshot to the next, so that a snapshot
    lets one go.

    Raises `ApiError` when partitions are there and no metadata, `CorruptLog` and `OSError`.
    """
    config = LogConfig(
        segment_bytes=min(snapshot_bytes, SEGMENT_BYTES_MAX),
        retention_ms=-1,
        max_message_bytes=CHANGE_BYTES_MAX,
    )
    # A directory without identity is left of a first start that was cut short.
    if not disk.exists(f"{METADATA_DIRECTORY}/{IDENTITY_FILE}"):
        _refuse_orphaned_data(disk)
        return create_logs(
            disk, ClusterImage(), METADATA_TOPIC, METADATA_TOPIC_ID, range(1), config
        )[0]
    opened = open_log(disk, METADATA_TOPIC, METADATA_TOPIC_ID, 0, config, now_ms)
    if opened.read_only_cause is not None:
        opened.discard()
        raise opened.read_only_cause
    return opened


def _refuse_orphaned_data(disk: Disk) -> None:
    orphans = [
        d for d in disk.list_directory("") if d != METADATA_DIRECTORY and is_partition(disk, d)
    ]
    if orphans:
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The data directory holds {len(orphans)} partitions ({orphans[0]}, ...) and no "
            f"{METADATA_DIRECTORY}; restore that directory, or use an empty data directory",
        )
