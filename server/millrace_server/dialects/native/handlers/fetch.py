"""Fetch: slices of the log into a response whose payload never enters this process's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from millrace_protocol.hot import array_count, fetch_response_prefix
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered, AnswerPieces, BodyParts
from millrace_server.dialects.native.later import mapped
from millrace_server.environment.seams import ReplyPart, release_slices
from millrace_server.loop.fair_scheduler import cut
from millrace_server.net.connection import Connection
from millrace_server.services.fetch import PIECE_ENTRIES, Fetched, FetchFrom


def handle(broker: Broker, connection: Connection, request: FetchRequest) -> Answered:
    """Reads at once, or waits for more as the request says."""
    is_first = not connection.unanswered_count
    if len(request.partitions) > PIECE_ENTRIES:
        return _in_pieces(broker, request, request.max_wait_ms, is_first=is_first)
    fetched = broker.fetches.fetch(
        [_from(entry) for entry in request.partitions],
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        is_first=is_first,
    )
    if isinstance(fetched, list):
        return _body(fetched)
    return mapped(fetched, _body, drop=lambda body: release_slices(body.parts))


def _in_pieces(
    broker: Broker, request: FetchRequest, max_wait_ms: int, *, is_first: bool
) -> AnswerPieces:
    wanted: list[FetchFrom] = []
    for asked in cut(request.partitions, PIECE_ENTRIES, lambda entry: entry.topic):
        wanted += map(_from, asked)
        yield None
    fetched = yield from broker.fetches.fetch_in_pieces(
        wanted,
        max_wait_ms=max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        is_first=is_first,
    )
    if isinstance(fetched, asyncio.Future):
        return mapped(fetched, lambda _: _in_pieces(broker, request, 0, is_first=False))
    body = _Body(len(fetched))
    try:
        for results in cut(fetched, PIECE_ENTRIES, lambda result: result.topic):
            body.add(results)
            yield None
    except GeneratorExit:
        for result in fetched:
            if result.records is not None:
                result.records.release()
        raise
    return body.whole()


def _from(entry: FetchPartition) -> FetchFrom:
    return FetchFrom(
        entry.topic, entry.partition, entry.fetch_offset, entry.max_bytes, entry.leader_epoch
    )


def _body(results: Sequence[Fetched]) -> BodyParts:
    body = _Body(len(results))
    body.add(results)
    return body.whole()


class _Body:
    """A response in the making: what stands between two slices is joined once, and piece by piece.

    With `+=` two thousand refusals of long names took eight seconds.
    """

    __slots__ = ("_parts", "_pending", "_size")

    def __init__(self, count: int) -> None:
        self._pending = [array_count(count)]
        self._parts: list[ReplyPart] = []
        self._size = 0

    def add(self, results: Sequence[Fetched]) -> None:
        pending = self._pending
        for result in results:
            records = result.records
            pending.append(
                fetch_response_prefix(
                    topic=result.topic,
                    partition=result.partition,
                    error_code=result.code,
                    error_message=result.message,
                    high_watermark=result.high_watermark,
                    log_start_offset=result.log_start_offset,
                    records_size=0 if records is None else records.size,
                )
            )
            if records is not None:
                prefix = b"".join(pending)
                self._parts += (prefix, records)
                self._size += len(prefix) + records.size
                pending.clear()
        if pending:
            rest = b"".join(pending)
            self._parts.append(rest)
            self._size += len(rest)
            pending.clear()

    def whole(self) -> BodyParts:
        return BodyParts(self._parts, self._size)
