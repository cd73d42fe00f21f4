"""Finds out what a port speaks that does not answer Hello.

Owns the probes: connections of their own, each with a request of another protocol, whose first
bytes of response `millrace_wire.foreign_protocols` recognizes. Used before a client has ever
spoken with a broker; a broker that is merely slow answers no probe in a way that is recognized.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, cast

from millrace._cluster.connection import Connection
from millrace.errors import ConnectionFailed, ForeignPort
from millrace_protocol.framing import LENGTH_SIZE, MAGIC
from millrace_wire.connection import Address
from millrace_wire.errors import ConnectionLost, ProtocolViolation
from millrace_wire.foreign_protocols import (
    FIRST_BYTES,
    HTTP_REQUEST,
    KAFKA_REQUEST,
    TLS_CLIENT_HELLO,
    resemblance,
)

SILENT_S = 1.0
"""A port that has not answered Hello for so long is probed. A broker answers within milliseconds,
and the connection to one that is slow goes on meanwhile."""
PROBE_S = 1.0
"""The longest that a probe waits for a response."""


async def first_contact(dialing: Coroutine[Any, Any, Connection], address: Address) -> Connection:
    """The connection that `dialing` makes to a port that this client has never spoken with.

    Raises what that raises, and `ForeignPort` where the port answers with other bytes than a
    broker, and where it is silent for `SILENT_S`, or closes the connection, and is recognized.
    """
    opening = asyncio.ensure_future(dialing)
    try:
        await asyncio.wait([opening], timeout=SILENT_S)
        if not opening.done() or _was_cut(opening):
            found = await recognize(address)
            if found is not None:
                host, port = address
                raise ForeignPort(f"no millrace broker at {host}:{port}: {found}")
        return await opening
    except ConnectionFailed as error:
        if isinstance(error.__cause__, ProtocolViolation):
            raise ForeignPort(str(error)) from error.__cause__
        raise
    finally:
        if not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
        # The error of a task refers to this frame, once it is raised here.
        del opening


def _was_cut(opening: asyncio.Future[Connection]) -> bool:
    """Whether the peer closed the connection before it answered."""
    failed = None if opening.cancelled() else opening.exception()
    return failed is not None and isinstance(failed.__cause__, ConnectionLost)


async def recognize(address: Address) -> str | None:
    """What the port speaks, None where no probe is answered in a way that is known."""
    requests = (TLS_CLIENT_HELLO, KAFKA_REQUEST, HTTP_REQUEST)
    answers = await asyncio.gather(*(_probe(address, request) for request in requests))
    if any(answer[LENGTH_SIZE:].startswith(MAGIC) for answer in answers):
        # A broker refuses the record of TLS. It speaks Kafka's protocol, too.
        return None
    found = [each for answer in answers if (each := resemblance(answer)) is not None]
    return found[0] if found else None


async def _probe(address: Address, request: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    probe = _Probe(request, loop.create_future())
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PROBE_S):
            await loop.create_connection(lambda: probe, *address)
            await probe.ended
    probe.close()
    return bytes(probe.received[:FIRST_BYTES])


class _Probe(asyncio.Protocol):
    def __init__(self, request: bytes, ended: asyncio.Future[None]) -> None:
        self.ended = ended
        self.received = bytearray()
        self._request = request
        self._transport: asyncio.Transport | None = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.received += data[:FIRST_BYTES]
        if len(self.received) >= FIRST_BYTES:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
