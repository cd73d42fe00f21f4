"""Looking into batches: records by time, records as text, and the keys of what is to be compacted.

Owns what that may cost others, for a broker else never looks. One look at a time, so that however
many ask, one batch is in memory; it is decompressed in a worker thread, and its records are decoded
a chunk at a time, in turns with the requests of others. Knows neither what is looked for nor how
records are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from types import TracebackType

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import (
    BatchHeader,
    Codec,
    Record,
    batch_positions,
    check_batch,
    decode_payload,
    decompress_payload,
    recompress,
)
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import ReadBuffer, Spawn
from millrace_server.limits import DECODED_RECORDS_MAX, LOOKED_AT_BYTES_MAX
from millrace_server.loop.fair_scheduler import FairScheduler


class BatchLookups:
    """The looks at one broker's records; a caller looks, and reads for it, within a look:

    async with lookups:
        async with aclosing(lookups.records(batches, from_offset=offset)) as chunks:
            async for records, next_offset in chunks:
                ...
    """

    def __init__(self, spawn: Spawn, scheduler: FairScheduler) -> None:
        self._spawn = spawn
        self._scheduler = scheduler
        self._gate = asyncio.Lock()

    @property
    def is_looking(self) -> bool:
        """Whether a look is under way."""
        return self._gate.locked()

    async def __aenter__(self) -> None:
        await self._gate.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._gate.release()

    async def records(
        self, batches: ReadBuffer, *, from_offset: int, limit_bytes: int = LOOKED_AT_BYTES_MAX
    ) -> AsyncGenerator[tuple[list[Record], int], None]:
        """Yields `(records, next_offset)` of whole batches from `from_offset` on, in chunks.

        Behind each batch the list is empty: `next_offset` also covers what compaction removed, and
        the batch was whole, which is not known before. `limit_bytes` bounds a batch once it is
        decompressed. Raises `CorruptBatch`, and `ApiError` for a batch of more records than are
        looked at, when it gets there.
        """
        for position in batch_positions(batches):
            header = check_batch(batches, position)
            if header.next_offset <= from_offset:
                continue
            if header.record_count > DECODED_RECORDS_MAX:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"The batch at offset {header.base_offset} holds {header.record_count} "
                    f"records, and a broker looks into batches of up to {DECODED_RECORDS_MAX}; "
                    "read it with a client",
                )
            if not header.is_control:
                payload = await self._payload(batches, position, header, limit_bytes)
                for records in decode_payload(payload, header):
                    await self._scheduler.yield_()
                    if records[0][0] < from_offset:
                        records = [record for record in records if record[0] >= from_offset]
                    if records:
                        yield records, records[-1][0] + 1
            yield [], header.next_offset

    async def recompressed(
        self, batch: ReadBuffer, header: BatchHeader, codec: Codec, *, limit_bytes: int
    ) -> bytearray:
        """A whole batch with another codec. Raises `CorruptBatch`."""
        return await self._spawn.blocking(
            partial(recompress, batch, header, codec, limit_bytes=limit_bytes)
        )

    async def _payload(
        self, batches: ReadBuffer, position: int, header: BatchHeader, limit_bytes: int
    ) -> bytes:
        def decompressed() -> bytes:
            return decompress_payload(batches, position, header, limit_bytes=limit_bytes)

        if header.codec is Codec.NONE:
            return decompressed()
        return await self._spawn.blocking(decompressed)
