"""Looking into batches for somebody: records by time, and records as text.

Owns what that may cost others, for a broker else never looks. One look at a time; a batch is
decompressed in a worker thread, and its records are decoded a chunk at a time, in turns with the
requests of others. Knows neither what is looked for nor how records are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import (
    BatchHeader,
    Codec,
    Record,
    batch_positions,
    check_batch,
    decode_payload,
    decompress_payload,
)
from millrace_server.host import Spawn
from millrace_server.limits import LOOKED_AT_BYTES_MAX, LOOKED_AT_RECORDS_MAX
from millrace_server.net.turns import Turns
from millrace_server.refusal import Refused


class Lookups:
    """The looks at one broker's records."""

    def __init__(self, spawn: Spawn, turns: Turns) -> None:
        self._spawn = spawn
        self._turns = turns
        self._gate = asyncio.Lock()

    async def records(
        self, batches: bytes, *, from_offset: int
    ) -> AsyncGenerator[tuple[list[Record], int], None]:
        """Yields `(records, next_offset)` of whole batches from `from_offset` on, in chunks.

        Behind each batch the list is empty: `next_offset` also covers what compaction removed, and
        the batch was whole, which is not known before. Others wait for
        their look until the generator ends or is closed. Raises `CorruptBatch`, and `Refused` for a
        batch of more records than are looked at, when it gets there.
        """
        async with self._gate:
            for position in batch_positions(batches):
                header = check_batch(batches, position)
                if header.next_offset <= from_offset:
                    continue
                if header.record_count > LOOKED_AT_RECORDS_MAX:
                    raise Refused(
                        ErrorCode.INVALID_REQUEST,
                        f"The batch at offset {header.base_offset} holds {header.record_count} "
                        f"records, and a broker looks into batches of up to "
                        f"{LOOKED_AT_RECORDS_MAX}; read it with a client",
                    )
                if not header.is_control:
                    if header.codec is Codec.NONE:
                        payload = _payload(batches, position, header)
                    else:
                        payload = await self._spawn.blocking(_payload, batches, position, header)
                    for records in decode_payload(payload, header):
                        await self._turns.turn()
                        if records[0][0] < from_offset:
                            records = [record for record in records if record[0] >= from_offset]
                        if records:
                            yield records, records[-1][0] + 1
                yield [], header.next_offset


def _payload(batches: bytes, position: int, header: BatchHeader) -> bytes:
    return decompress_payload(batches, position, header, limit_bytes=LOOKED_AT_BYTES_MAX)
