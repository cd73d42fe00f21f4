"""Record batches: Kafka's magic-2 format, byte for byte, on the wire and on disk alike.

The broker needs `header` and `validate` and never decodes a record; clients add `encode`,
`decode` and `murmur2`; `arrow` and `arrow_encode` import pyarrow, so only users of columns
import them.
"""

from millrace_protocol.records.columns import Columns
from millrace_protocol.records.compression import (
    Codec,
    CompressionError,
    DecompressedTooLarge,
    compress,
    decompress,
)
from millrace_protocol.records.corruption import BatchTooLarge, CorruptBatch, Fault
from millrace_protocol.records.coverage import count_records, offset_after
from millrace_protocol.records.decode import (
    CHUNK_RECORDS,
    decode_columns,
    decode_fetch,
    decode_payload,
    decode_records,
    decompress_payload,
)
from millrace_protocol.records.encode import (
    HEADER_OVERHEAD_BYTES_MAX,
    RECORD_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES_MAX,
    SMALL_BATCH_BYTES,
    Headers,
    Record,
    encode_batch,
    encode_records,
    record_size_max,
)
from millrace_protocol.records.header import (
    BATCH_HEADER,
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    MAGIC,
    PAYLOAD_BYTES_MAX,
    RECORD_COUNT_MAX,
    BatchHeader,
    batch_epochs,
    batch_extent,
    batch_positions,
    batch_ranges,
    batch_span,
    read_header,
)
from millrace_protocol.records.murmur2 import murmur2, partition_for_key
from millrace_protocol.records.recompress import recompress
from millrace_protocol.records.validate import (
    assign,
    batch_crc,
    check_batch,
    check_batches,
    check_produced_batch,
    seal,
    set_max_timestamp,
    stamp_log_append_time,
)

__all__ = [
    "BATCH_HEADER",
    "BATCH_LENGTH_MIN",
    "CHUNK_RECORDS",
    "HEADER_OVERHEAD_BYTES_MAX",
    "HEADER_SIZE",
    "MAGIC",
    "PAYLOAD_BYTES_MAX",
    "RECORD_COUNT_MAX",
    "RECORD_OVERHEAD_BYTES",
    "RECORD_OVERHEAD_BYTES_MAX",
    "SMALL_BATCH_BYTES",
    "BatchHeader",
    "BatchTooLarge",
    "Codec",
    "Columns",
    "CompressionError",
    "CorruptBatch",
    "DecompressedTooLarge",
    "Fault",
    "Headers",
    "Record",
    "assign",
    "batch_crc",
    "batch_epochs",
    "batch_extent",
    "batch_positions",
    "batch_ranges",
    "batch_span",
    "check_batch",
    "check_batches",
    "check_produced_batch",
    "compress",
    "count_records",
    "decode_columns",
    "decode_fetch",
    "decode_payload",
    "decode_records",
    "decompress",
    "decompress_payload",
    "encode_batch",
    "encode_records",
    "murmur2",
    "offset_after",
    "partition_for_key",
    "read_header",
    "recompress",
    "record_size_max",
    "seal",
    "set_max_timestamp",
    "stamp_log_append_time",
]
