"""Fetch: slices of the log into a response whose payload never enters this process's memory."""

from __future__ import annotations

from collections.abc import Sequence

from millrace_protocol.hot import array_count, fetch_response_prefix
from millrace_protocol.messages.fetch import FetchRequest
from millrace_server.broker.broker import Broker
from millrace_server.broker.fetches import Fetched, FetchFrom
from millrace_server.dialects.native.answer import Answered, BodyParts
from millrace_server.dialects.native.later import mapped
from millrace_server.host import ReplyPart, release_slices
from millrace_server.net.connection import Connection


def handle(broker: Broker, connection: Connection, request: FetchRequest) -> Answered:
    """Reads at once, or waits for more as the request says."""
    fetched = broker.fetches.fetch(
        [
            FetchFrom(p.topic, p.partition, p.fetch_offset, p.max_bytes, p.leader_epoch)
            for p in request.partitions
        ],
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
    )
    if isinstance(fetched, list):
        return _body(fetched)
    return mapped(fetched, _body, drop=lambda body: release_slices(body.parts))


def _body(results: Sequence[Fetched]) -> BodyParts:
    # Joined once: with `+=` two thousand refusals of long names took eight seconds.
    pending = [array_count(len(results))]
    parts: list[ReplyPart] = []
    size = 0
    for result in results:
        records = result.records
        pending.append(
            fetch_response_prefix(
                topic=result.topic,
                partition=result.partition,
                error_code=result.code,
                error_message=result.sentence,
                high_watermark=result.high_watermark,
                log_start_offset=result.log_start_offset,
                records_size=0 if records is None else records.size,
            )
        )
        if records is not None:
            prefix = b"".join(pending)
            parts += (prefix, records)
            size += len(prefix) + records.size
            pending.clear()
    if pending:
        last = b"".join(pending)
        parts.append(last)
        size += len(last)
    return BodyParts(parts, size)
