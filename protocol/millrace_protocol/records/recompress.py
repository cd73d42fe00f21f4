"""Batches with another codec than that of their producer."""

from __future__ import annotations

from millrace_protocol.records.compression import Codec
from millrace_protocol.records.decode import decompress_payload
from millrace_protocol.records.encode import finish_batch
from millrace_protocol.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, ReadBuffer


def recompress(
    batch: ReadBuffer, header: BatchHeader, codec: Codec, *, limit_bytes: int
) -> bytearray:
    """Return a checked batch with its records compressed by `codec`, if that makes them smaller.

    Raises `CorruptBatch` if the records take more than `limit_bytes` or are no stream of their
    codec.
    """
    payload = decompress_payload(batch, 0, header, limit_bytes=limit_bytes)
    return finish_batch(
        bytearray(HEADER_SIZE) + payload,
        codec=codec,
        level=None,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & ~CODEC_MASK,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
