"""The parts of a Fetch response."""

from __future__ import annotations

import struct

from millrace_protocol.codec import Buffer, encode
from millrace_protocol.messages.fetch import FetchPartitionResult

_COUNT = struct.Struct(">i")


def array_count(count: int) -> bytes:
    """The four bytes in front of an array of `count` elements."""
    return _COUNT.pack(count)


def produce_count(body: Buffer) -> int:
    """How many partitions a Produce request says that it names."""
    count: int = struct.unpack_from(">hii", body)[2]
    return count


def fetch_response_prefix(
    *,
    topic: str,
    partition: int,
    error_code: int,
    error_message: str | None,
    high_watermark: int,
    log_start_offset: int,
    records_size: int,
) -> bytes:
    """One partition's entry in a Fetch response, up to and including the length of `records`."""
    result = FetchPartitionResult(
        topic, partition, error_code, error_message, high_watermark, log_start_offset, b""
    )
    return encode(result, 0)[:-4] + _COUNT.pack(records_size)
