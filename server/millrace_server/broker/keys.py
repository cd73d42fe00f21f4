"""What a compacted topic asks of a batch before it is appended: a key for every record.

The one place where the broker reads records that it is sent. Owns the bound on that: a batch whose
records take more memory than those of any client is refused. Source: Kafka's `LogValidator`.
"""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import BatchHeader, decode_columns
from millrace_server.limits import DECODED_BYTES_MAX, DECODED_RECORDS_MAX
from millrace_server.refusal import Refused


def check_keys(topic: str, batch: memoryview, header: BatchHeader) -> None:
    """Raises `Refused` unless every record of a checked batch has a key, and can be read.

    A batch that cannot be read is `CorruptBatch`: compaction would keep it for ever.
    """
    if header.record_count > DECODED_RECORDS_MAX:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"The batch has {header.record_count} records, and topic {topic!r} is compacted and "
            f"takes at most {DECODED_RECORDS_MAX} at a time; send smaller batches",
        )
    for columns, _ in decode_columns(batch, check_crc=False, limit_bytes=DECODED_BYTES_MAX):
        if None in columns.keys:
            index = columns.offsets[columns.keys.index(None)] - header.base_offset
            raise Refused(
                ErrorCode.INVALID_RECORD,
                f"Record {index} of the batch has no key, and topic {topic!r} is compacted, which "
                "keeps the last record of each key; give every record a key, or set "
                "cleanup.policy to delete",
            )
