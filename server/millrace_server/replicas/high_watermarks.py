"""The high watermarks of this broker's replicas on the disk: where a restart goes on.

A restarted replica does not know what is committed until its leader tells, or, if it leads, until
its followers have fetched. With the file it goes on from where it was some seconds ago, so that
consumers are not sent back, and a follower notices a leader that has lost committed records. Kafka:
`replication-offset-checkpoint`.

    byte  0                12
          +----------------+----------------------------------------------------+
          | checkpoint_file| (topic id 16 bytes, partition i32, offset i64)*    |   MRHW, version 1
          +----------------+----------------------------------------------------+

An offset in the file may be too low, never too high: it is written when it has been reached.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Final

from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint_file import CheckpointFormat, read_file, replace_file
from millrace_server.replication.messages import PartitionKey

HIGH_WATERMARKS_NAME: Final = "high-watermarks"
_FORMAT: Final = CheckpointFormat(b"MRHW", 1)
_ENTRY = struct.Struct(">16siq")


def encode_high_watermarks(offsets: Mapping[PartitionKey, int]) -> bytes:
    """Returns the file's content."""
    return _FORMAT.encode(
        b"".join(
            _ENTRY.pack(key.topic_id.bytes, key.partition, offset)
            for key, offset in offsets.items()
        )
    )


def decode_high_watermarks(data: bytes) -> dict[PartitionKey, int] | None:
    """Reads a file's content; None if it is not a whole file of this version."""
    content = _FORMAT.decode(data)
    if content is None or len(content.body) % _ENTRY.size:
        return None
    return {
        PartitionKey(uuid.UUID(bytes=topic_id), partition): offset
        for topic_id, partition, offset in _ENTRY.iter_unpack(content.body)
    }


def read_high_watermarks(disk: Disk) -> dict[PartitionKey, int]:
    """The offsets in the file; none if it is missing or broken. Blocking; raises `OSError`."""
    data = read_file(disk, HIGH_WATERMARKS_NAME)
    return {} if data is None else decode_high_watermarks(data) or {}


def write_high_watermarks(disk: Disk, offsets: Mapping[PartitionKey, int]) -> None:
    """Makes the offsets durable. Blocking; raises `OSError`."""
    replace_file(disk, HIGH_WATERMARKS_NAME, encode_high_watermarks(offsets))
