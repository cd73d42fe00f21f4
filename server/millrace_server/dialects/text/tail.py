"""TAIL: new records as lines, for as long as the peer listens.

A coroutine that waits while there is nothing to send: from the end of the log until the high
watermark moves. Each chunk that it reads is a chunk of the fair scheduler: a record that a thousand
peers follow is written a thousand times, between the requests of others.
"""

from __future__ import annotations

import asyncio

from millrace_server.dialects.text.commands import read_lines
from millrace_server.dialects.text.lines import encoded
from millrace_server.net.dialect import Peer
from millrace_server.net.pending_response import PendingResponse
from millrace_server.services.records import PartitionRecords
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CHUNK_RECORDS = 100
CHUNK_CHARACTERS = 64 << 10
"""Sent in one chunk, whichever is reached first; between chunks the peer has to read."""


async def follow(
    services: Services,
    context: RequestContext,
    records: PartitionRecords,
    connection: Peer,
    stream: PendingResponse,
) -> None:
    """Sends the lines of new records from the high watermark on; ends with an error alone.

    Raises `ApiError` when the topic is deleted, when the session of the client ends or it loses the
    right to read, and for a record that cannot be read.
    """
    offset = records.high_watermark
    with records.watch() as watch:
        while True:
            with services.authentication.session_timer(context, watch.on_moved):
                await watch.moved()
            while True:
                await services.scheduler.yield_()
                services.authentication.check_may_request(context)
                records.check_still_readable()
                lines, offset = await read_lines(
                    services, records, offset, CHUNK_RECORDS, characters_max=CHUNK_CHARACTERS
                )
                if not lines:
                    break
                held_back_ms = records.count_sent(sum(map(len, lines)))
                if not connection.send_part(stream, encoded(lines)):
                    await connection.drained()
                if held_back_ms:
                    await asyncio.sleep(held_back_ms / 1000)
