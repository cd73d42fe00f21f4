"""Fetch: slices of the log into a response whose payload never enters this process's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from millrace_protocol.codec import Buffer, Encoder, encode_parts
from millrace_protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
)
from millrace_server.dialects.response_body import BodyParts
from millrace_server.loop.fair_scheduler import chunks
from millrace_server.services.fetch import CHUNK_ENTRIES, Fetched, FetchFrom, release
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

VERSION = 0
"""The only version of Fetch."""


async def handle(services: Services, context: RequestContext, request: FetchRequest) -> BodyParts:
    """Reads at once, or waits for more as the request says."""
    wanted = [_from(entry) for entry in request.partitions]
    fetched = await services.fetch.fetch(
        context,
        wanted,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        rack=request.rack,
    )
    if len(fetched) <= CHUNK_ENTRIES:
        return _body(
            fetched,
            encode_parts(FetchResponse(tuple([_result(each) for each in fetched])), VERSION),
        )
    try:
        results: list[FetchPartitionResult] = []
        for chunk in chunks(fetched, CHUNK_ENTRIES, lambda result: result.topic):
            await services.scheduler.yield_()
            results += map(_result, chunk)
        encoder = Encoder(FetchResponse(tuple(results)), VERSION)
        while not encoder.step(CHUNK_ENTRIES):
            await services.scheduler.yield_()
    except BaseException:
        release(fetched)
        raise
    return _body(fetched, encoder.parts)


def _from(entry: FetchPartition) -> FetchFrom:
    return FetchFrom(
        entry.topic, entry.partition, entry.fetch_offset, entry.max_bytes, entry.leader_epoch
    )


def _result(fetched: Fetched) -> FetchPartitionResult:
    records = b"" if fetched.records is None else fetched.records
    return FetchPartitionResult(
        fetched.topic,
        fetched.partition,
        fetched.code,
        fetched.message,
        fetched.high_watermark,
        fetched.log_start_offset,
        fetched.preferred_replica,
        # A slice of a file stands for its bytes, and is a part of the body as it is.
        cast(memoryview, records),
    )


def _body(fetched: Sequence[Fetched], parts: Sequence[Buffer]) -> BodyParts:
    errors = [result.code for result in fetched if result.code]
    return BodyParts([*parts], sum(map(len, parts)), errors)
