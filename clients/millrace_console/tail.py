"""The live tail of a topic: a consumer of its own, as server-sent events.

    event: ready     the positions are set; a record that is acked from now on will come
    event: records   a JSON list of at most `RECORDS_OF_AN_EVENT` records
    event: problem   one sentence, in JSON; the stream ends
    event: end       the stream has lasted `STREAM_S`; the page may open another

Owns the stream and its bounds. The consumer reads ahead `BUFFER_BYTES` at most. While the page
takes nothing, the stream waits, and the consumer with it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from millrace.consumer import Consumer, Start
from millrace.errors import MillraceError
from millrace.records import TopicPartition
from millrace_console.errors import InputError
from millrace_console.record_view import (
    RECORD_BYTES_MAX,
    TAIL_BYTES_MAX,
    AnyRecord,
    RecordFilter,
    dissected,
    hex_dump,
    view,
)

STREAMS_MAX = 16
STREAM_S = 3600.0
RECORDS_OF_AN_EVENT = 200
KEEPALIVE_S = 10.0
BUFFER_BYTES = 4 << 20
FETCH_BYTES = 1 << 20
LOOKUP_S = 10.0
"""The longest wait for one record that the page asks for."""


@dataclass(frozen=True, slots=True)
class TailRequest:
    """What a tail reads. `offset` needs a single partition; None begins at `start`."""

    topic: str
    partition: int | None
    start: Start
    offset: int | None
    wanted: RecordFilter

    @classmethod
    def of(cls, topic: str, query: Mapping[str, str]) -> TailRequest:
        """From the query of the page. Raises `InputError`."""
        partition = _number(query, "partition")
        offset = _number(query, "offset")
        if offset is not None and partition is None:
            raise InputError("offset: choose the partition that it is in")
        start: Start = "latest"
        if query.get("start") == "earliest":
            start = "earliest"
        elif (time_ms := _number(query, "time_ms")) is not None:
            start = time_ms
        wanted = RecordFilter.of(query.get("text", ""), query.get("header", ""))
        return cls(topic, partition, start, offset, wanted)


class Tails:
    """The open tails: at most `STREAMS_MAX`."""

    def __init__(self, servers: str, options: Mapping[str, Any]) -> None:
        self._servers = servers
        self._options = options
        self._open: set[asyncio.Timeout] = set()

    @property
    def is_full(self) -> bool:
        """Whether no further stream may be opened."""
        return len(self._open) >= STREAMS_MAX

    @property
    def is_open(self) -> bool:
        """Whether a stream is open."""
        return bool(self._open)

    def close(self) -> None:
        """Ends every stream."""
        now_s = asyncio.get_running_loop().time()
        for limit in self._open:
            if limit.when() is not None and not limit.expired():
                limit.reschedule(now_s)

    async def events(
        self, request: TailRequest, partitions: int, *, may_go_on: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """The events of a stream, until it ends or the caller closes it.

        `may_go_on` is asked before each event, which is every `KEEPALIVE_S` at least.
        """
        limit = asyncio.timeout(STREAM_S)
        self._open.add(limit)
        last = event("end", None)
        try:
            async with limit, self._consumer() as consumer:
                await _begin(consumer, request, partitions)
                yield event("ready", None)
                async for found in _records(consumer, request.wanted):
                    if not may_go_on():
                        break
                    yield event("records", found) if found else b": idle\n\n"
        except TimeoutError:
            pass
        except MillraceError as error:
            last = event("problem", str(error))
        finally:
            self._open.discard(limit)
        yield last

    async def record(self, topic: str, partition: int, offset: int) -> dict[str, Any] | None:
        """One record with its hex and its batch as the dissector shows it; None: not there."""
        where = TopicPartition(topic, partition)
        async with self._consumer() as consumer:
            consumer.assign([where])
            ends = await consumer.end_offsets(where)
            if offset >= ends[where]:
                return None
            consumer.seek(where, offset)
            async with asyncio.timeout(LOOKUP_S):
                batch = await anext(consumer.batches())
            record = next((each for each in batch if each.offset == offset), None)
            if record is None:
                return None
            return {
                **view(record, RECORD_BYTES_MAX),
                "key_hex": hex_dump(record.key, RECORD_BYTES_MAX // 16),
                "value_hex": hex_dump(record.value, RECORD_BYTES_MAX // 16),
                "batch": dissected(batch.view, offset),
            }

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Consumer[bytes, bytes]]:
        consumer: Consumer[bytes, bytes] = Consumer(
            self._servers,
            buffer_bytes=BUFFER_BYTES,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_bytes=FETCH_BYTES,
            **self._options,
        )
        async with consumer:
            yield consumer


def event(name: str, data: object) -> bytes:
    """One server-sent event. JSON has no line breaks outside its texts, which are escaped."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def _begin(consumer: Consumer[bytes, bytes], request: TailRequest, partitions: int) -> None:
    numbers = range(partitions) if request.partition is None else [request.partition]
    wheres = [TopicPartition(request.topic, number) for number in numbers]
    consumer.assign(wheres, start=request.start)
    if request.offset is not None:
        consumer.seek(wheres[0], request.offset)
    for where in wheres:
        # Looks an end up, so that no record from now on is passed over.
        await consumer.position(where)


async def _records(
    consumer: Consumer[bytes, bytes], wanted: RecordFilter
) -> AsyncIterator[list[dict[str, Any]]]:
    """Records that are wanted, as views; an empty list when there was none for `KEEPALIVE_S`."""
    said_s = time.monotonic()
    while True:
        found: list[AnyRecord] = await consumer.getmany(
            RECORDS_OF_AN_EVENT, timeout_ms=round(KEEPALIVE_S * 1000)
        )
        shown = [view(each, TAIL_BYTES_MAX) for each in found if wanted.matches(each)]
        if shown or time.monotonic() - said_s >= KEEPALIVE_S:
            said_s = time.monotonic()
            yield shown


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InputError(f"{name}: {text[:40]!r} is not a number of 0 or more")
    return int(text)
