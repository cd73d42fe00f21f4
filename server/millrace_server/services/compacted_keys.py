"""What a compacted topic asks of a batch before it is appended: a key for every record.

Owns the bound on reading them: a batch whose records take more memory than those of any client is
refused, and a long one is looked into like any other (`lookups`), for its records take longer than
everything else that is done for it. Source: Kafka's `LogValidator`.
"""

from __future__ import annotations

from contextlib import aclosing

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    decode_payload,
    decompress_payload,
)
from millrace_protocol.records.header import ATTRIBUTES_POSITION, CODEC_MASK
from millrace_server.api_error import ApiError
from millrace_server.limits import DECODED_BYTES_MAX, DECODED_RECORDS_MAX
from millrace_server.services.batch_lookups import BatchLookups

SHORT_BATCH_BYTES = 16 << 10
"""Of a batch that is not compressed, which is checked at once, in some 100 us."""


def is_long(batch: memoryview) -> bool:
    """Whether what may be a batch is to be looked into: it is long, or compressed."""
    if len(batch) <= SHORT_BATCH_BYTES:
        return len(batch) >= HEADER_SIZE and bool(batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK)
    return True


def check_keys(topic: str, batch: memoryview, header: BatchHeader) -> None:
    """Raises `ApiError` unless every record of a checked batch has a key, and can be read.

    A batch that cannot be read is `CorruptBatch`: compaction would keep it for ever.
    """
    _check_count(topic, header)
    payload = decompress_payload(batch, 0, header, limit_bytes=DECODED_BYTES_MAX)
    for records in decode_payload(payload, header):
        _check_each(topic, records, header)


async def look_for_keys(
    topic: str, batch: memoryview, header: BatchHeader, lookups: BatchLookups
) -> None:
    """The same in turns with others. `batch` must not change meanwhile."""
    _check_count(topic, header)
    looked = lookups.records(batch, from_offset=header.base_offset, limit_bytes=DECODED_BYTES_MAX)
    async with lookups, aclosing(looked) as chunks:
        async for records, _ in chunks:
            _check_each(topic, records, header)


def _check_count(topic: str, header: BatchHeader) -> None:
    if header.record_count > DECODED_RECORDS_MAX:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"The batch has {header.record_count} records, and topic {topic!r} is compacted and "
            f"takes at most {DECODED_RECORDS_MAX} at a time; send smaller batches",
        )


def _check_each(topic: str, records: list[Record], header: BatchHeader) -> None:
    for offset, _, key, *_ in records:
        if key is None:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"Record {offset - header.base_offset} of the batch has no key, and topic "
                f"{topic!r} is compacted, which keeps the last record of each key; give every "
                "record a key, or set cleanup.policy to delete",
            )
