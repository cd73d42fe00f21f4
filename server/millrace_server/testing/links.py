"""The network between the brokers of a test: which of them reach which.

Every connection between two brokers is made by one of them, through its door `Net.connect`; so a
link is cut on that side alone. A link that is cut loses packets and nothing else, as a network
does: no side is told. What one side sends arrives when the link is healed, if the connection is
there then; a side that closes a connection is rid of it, and the other one hears of that when the
link is healed; a connection that is being made waits. A link that is slow has everything arrive
later. Connections of clients are not touched.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from millrace_server.environment.seams import Net
from millrace_server.testing.delay_line import DelayLine

LATE_BYTES = 64 * 1024
"""What the event loop takes at once from a link that is slow."""
Address = tuple[str, int]
Direction = tuple[int, int]
"""From one broker to another."""


class Links:
    """Cuts, slows and heals links between brokers, by their ids."""

    def __init__(self, addresses: Mapping[int, Address]) -> None:
        """`addresses` are those where the brokers listen for each other."""
        self._brokers = {address: broker_id for broker_id, address in addresses.items()}
        self._cut: set[Direction] = set()
        self._delays_s: dict[Direction, float] = {}
        self._healed = asyncio.Event()
        self._connections: dict[LinkConnection, None] = {}

    def net(self, broker_id: int, net: Net) -> LinkedNet:
        """The network of the machine as a process of a broker has it."""
        return LinkedNet(broker_id, self, net)

    def cut(self, directions: Iterable[Direction]) -> None:
        """Lets nothing through in these directions."""
        self._cut.update(directions)
        for connection in self._connections:
            connection.on_changed()

    def slow(self, directions: Iterable[Direction], delay_s: float) -> None:
        """Has everything arrive so much later in these directions. Raises `ValueError`."""
        check_delay(delay_s)
        self._delays_s.update(dict.fromkeys(directions, delay_s))

    def heal(self) -> None:
        """Lets everything through, at once."""
        self._cut.clear()
        self._delays_s.clear()
        healed, self._healed = self._healed, asyncio.Event()
        healed.set()
        for connection in [*self._connections]:
            connection.on_changed()

    def is_open(self, source: int, target: int) -> bool:
        """Whether what `source` sends reaches `target`."""
        return (source, target) not in self._cut

    def delay_s(self, source: int, target: int) -> float:
        """How much later than it was sent something arrives."""
        return self._delays_s.get((source, target), 0.0)

    def broker_at(self, address: Address) -> int | None:
        """The broker that listens at an address for others."""
        return self._brokers.get(address)

    async def until_open(self, one: int, other: int) -> None:
        """Returns when both directions are open."""
        while not (self.is_open(one, other) and self.is_open(other, one)):
            await self._healed.wait()

    def add(self, connection: LinkConnection) -> None:
        """A connection is made."""
        self._connections[connection] = None

    def discard(self, connection: LinkConnection) -> None:
        """A connection is gone on both sides."""
        self._connections.pop(connection, None)


def check_delay(delay_s: float) -> None:
    """Raises `ValueError` unless something can arrive so much later."""
    if not 0 <= delay_s < math.inf:
        raise ValueError(f"a delay is at least 0 seconds, and not {delay_s!r}")


def between(ones: Iterable[int], others: Iterable[int]) -> list[Direction]:
    """Both directions of every link between two groups of brokers."""
    others = [*others]
    there = [(one, other) for one in ones for other in others if one != other]
    return there + [(other, one) for one, other in there]


class LinkedNet:
    """The door `Net` of one process of a broker."""

    def __init__(self, broker_id: int, links: Links, net: Net) -> None:
        self._broker_id = broker_id
        self._links = links
        self._net = net
        self._connections: dict[LinkConnection, None] = {}
        self._has_ended = False
        self.listen = self._net.listen

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """See `seams.Net`."""
        peer = self._links.broker_at((host, port))
        if peer is None:
            return await self._net.connect(protocol, host, port)
        await self._links.until_open(self._broker_id, peer)
        here = self._broker_id
        await asyncio.sleep(self._links.delay_s(here, peer) + self._links.delay_s(peer, here))
        if self._has_ended:
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
        made: list[LinkConnection] = []

        def connection() -> LinkConnection:
            inner = cast("asyncio.BufferedProtocol", protocol())
            made.append(LinkConnection(inner, self._broker_id, peer, self._links, self._lost))
            return made[-1]

        await self._net.connect(connection, host, port)
        self._connections[made[-1]] = None
        return made[-1].transport, made[-1].protocol

    def end(self) -> None:
        """The process is gone: the kernel closes its connections."""
        self._has_ended = True
        for connection in [*self._connections]:
            connection.transport.abort()

    def _lost(self, connection: LinkConnection) -> None:
        self._connections.pop(connection, None)


class LinkConnection(asyncio.BufferedProtocol):
    """One connection, between the protocol that has asked for it and the real transport."""

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        source: int,
        target: int,
        links: Links,
        on_lost: Callable[[LinkConnection], None],
    ) -> None:
        self.protocol = protocol
        self.transport = LinkTransport(self)
        self._source = source
        self._target = target
        self._links = links
        self._on_lost = on_lost
        self._real: asyncio.Transport
        self._unsent: list[bytes] = []
        self._sent = DelayLine(self._write)
        self._received = DelayLine(self._feed)
        self._late: memoryview | None = None
        """Where the event loop puts what is to arrive later."""
        self._is_reading = True
        self.is_closed = False
        """Whether this side has closed it."""

    # What the protocol does, by way of its transport

    @property
    def real(self) -> asyncio.Transport:
        """The transport of the event loop."""
        return self._real

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends, or keeps what the link does not let through."""
        if self.is_closed:
            return
        delay_s = self._links.delay_s(self._source, self._target)
        if delay_s or self._sent:
            self._sent.send(bytes(data), delay_s)
        else:
            self._write(data)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_open():
            self._real.write(data)
        else:
            self._unsent.append(bytes(data))

    def close(self) -> None:
        """This side is rid of the connection; the other one hears of it if the link is open."""
        if self.is_closed:
            return
        self.is_closed = True
        self._drop()
        if not self._is_open():
            asyncio.get_running_loop().call_soon(self._lose, None)
        self.on_changed()

    # What the network does

    def on_changed(self) -> None:
        """The link was cut or healed."""
        if not self._links.delay_s(self._target, self._source):
            self._received.flush()
        if not self._links.delay_s(self._source, self._target):
            self._sent.flush()
        is_reading = not self.is_closed and self._links.is_open(self._target, self._source)
        if is_reading is not self._is_reading and not self._real.is_closing():
            self._is_reading = is_reading
            if is_reading:
                self._real.resume_reading()
            else:
                self._real.pause_reading()
        if self._is_open():
            unsent, self._unsent = self._unsent, []
            self._real.writelines(unsent)
            if self.is_closed:
                self._real.abort()

    def _is_open(self) -> bool:
        return self._links.is_open(self._source, self._target)

    def _drop(self) -> None:
        self._sent.drop()
        self._received.drop()

    def _feed(self, data: bytes) -> None:
        while data and not self.is_closed:
            room = memoryview(self.protocol.get_buffer(len(data)))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.protocol.buffer_updated(count)
            data = data[count:]

    def _lose(self, error: Exception | None) -> None:
        self._on_lost(self)
        protocol, self.protocol = self.protocol, asyncio.BufferedProtocol()
        protocol.connection_lost(error)

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._real = cast("asyncio.Transport", transport)
        self._links.add(self)
        self.protocol.connection_made(self.transport)
        self.on_changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.discard(self)
        self.is_closed = True
        self._drop()
        self._lose(exc)

    def get_buffer(self, sizehint: int) -> Any:
        if self._received or self._links.delay_s(self._target, self._source):
            self._late = memoryview(bytearray(LATE_BYTES))
            return self._late
        return self.protocol.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        late, self._late = self._late, None
        if late is None:
            self.protocol.buffer_updated(nbytes)
        else:
            delay_s = self._links.delay_s(self._target, self._source)
            self._received.send(bytes(late[:nbytes]), delay_s)

    def eof_received(self) -> bool | None:
        return self.protocol.eof_received()

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()


class LinkTransport(asyncio.Transport):
    """The transport of a connection as its protocol has it."""

    def __init__(self, connection: LinkConnection) -> None:
        super().__init__()
        self._connection = connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection.real.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._connection.real.set_write_buffer_limits(high, low)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._connection.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._connection.is_closed

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.close()
