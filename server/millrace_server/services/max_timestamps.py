"""The largest timestamp of a batch whose producer did not compute it.

Some clients leave `max_timestamp` at -1: sarama did until 2025. Kafka computes it from the
records of every batch (`LogValidator`); the broker does so where it is missing, since retention and
ListOffsets go by it.
"""

from __future__ import annotations

from contextlib import aclosing

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import BatchHeader, read_header, set_max_timestamp
from millrace_server.api_error import ApiError
from millrace_server.limits import DECODED_BYTES_MAX, DECODED_RECORDS_MAX
from millrace_server.services.batch_lookups import BatchLookups


async def compute_max_timestamp(
    batch: memoryview, header: BatchHeader, lookups: BatchLookups
) -> BatchHeader:
    """Writes the largest timestamp of its records into a checked batch; returns the new header.

    It is never before `base_timestamp`. Raises `ApiError` for a batch of too many records, and
    `CorruptBatch`. `batch` must not change meanwhile.
    """
    if header.record_count > DECODED_RECORDS_MAX:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"The batch has {header.record_count} records and no max timestamp; set it, or send "
            f"at most {DECODED_RECORDS_MAX} records at a time",
        )
    newest = header.base_timestamp
    looked = lookups.records(batch, from_offset=header.base_offset, limit_bytes=DECODED_BYTES_MAX)
    async with lookups, aclosing(looked) as chunks:
        async for records, _ in chunks:
            newest = max((newest, *(timestamp for _, timestamp, *_ in records)))
    set_max_timestamp(batch, timestamp_ms=newest)
    return read_header(batch)
