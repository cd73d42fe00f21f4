"""A peer for tests of a connection: a real socket, and whole frames one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from millrace_protocol.api import ApiKey, Listener, apis_of
from millrace_protocol.codec import encode
from millrace_protocol.framing import RequestHeader, read_request_header, response_frame
from millrace_protocol.messages.hello import ApiRange, HelloResponse
from millrace_protocol.messages.metadata import MetadataResponse
from millrace_protocol.schema import Message
from millrace_wire.connection import Address, Connection, ConnectionConfig, connect

CONFIG = ConnectionConfig(
    software="test",
    software_version="1",
    client_id="test",
    connect_timeout_ms=30_000,
    receive_bytes_max=64 << 20,
)
TIMEOUT_MS = 60_000
APIS_SPOKEN = tuple(
    ApiRange(key, api.min_version, api.max_version) for key, api in apis_of(Listener.CLIENT).items()
)
HELLO = HelloResponse("peer", "1", "cluster", 7, 16 << 20, 64, APIS_SPOKEN)
METADATA = MetadataResponse("cluster", 7, (), ())


class Peer:
    """One accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader

    async def next(self) -> RequestHeader:
        """The next request, whole."""
        length = await self._reader.readexactly(4)
        rest = await self._reader.readexactly(int.from_bytes(length, "big"))
        return read_request_header(length + rest)

    def respond(self, header: RequestHeader, message: Message) -> None:
        """Responds to a request."""
        self.writer.write(
            response_frame(
                api=header.api,
                version=0,
                correlation_id=header.correlation_id,
                body=encode(message, 0),
            )
        )

    async def hello(self, hello: HelloResponse = HELLO) -> None:
        """Reads Hello and responds."""
        header = await self.next()
        assert header.api == ApiKey.HELLO
        self.respond(header, hello)

    async def serve(self, response: MetadataResponse = METADATA) -> None:
        """Responds to Metadata until the end."""
        while True:
            self.respond(await self.next(), response)

    async def read_on(self) -> None:
        """Reads requests until the end, and responds to none."""
        while True:
            await self.next()


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def listening(script: Script) -> AsyncIterator[Address]:
    """A server that runs `script` for each connection, and its address."""
    running: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await script(Peer(reader, writer))
        finally:
            writer.close()
            running.discard(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def connected(address: Address, config: ConnectionConfig = CONFIG) -> Connection:
    """A connection to a peer."""
    return await connect(asyncio.get_running_loop().create_connection, address, config)
