"""The two ends of a connection in memory, as transports.

Owns what a kernel does for one connection: order, windows, acks, and how it ends. What lies between
the ends is `network`'s.

    write -> outgoing -> (window) -> transit -> (latency) -> received -> (reading) -> protocol

What was received and not read counts against the sender's window. So a process that is paused takes
so many bytes more, and then its peers have to wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import errno
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from millrace_simulation.loop import Process, SimLoop, running_process


class Mark(enum.Enum):
    """What travels besides bytes."""

    FIN = enum.auto()
    RST = enum.auto()


class Between(Protocol):
    """What lies between two ends: the network as they need it."""

    loop: SimLoop
    rng: random.Random
    sometimes: Callable[[str], None]
    note_arrival: Callable[[int, str, str, bytes | Mark], None]
    window_bytes: int
    segment_bytes: int
    context: contextvars.Context
    listeners: dict[tuple[str, int], Listener]

    def latency_s(self, source: str, target: str) -> float:
        """How long the next segment travels."""

    def read_size(self, size: int) -> int:
        """How much of `size` bytes the next read gets."""

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one machine to the other."""

    def forget(self, end: End) -> None:
        """Drops an end that is lost."""


class Listener:
    """A port on which a process takes connections; also the socket it would have."""

    def __init__(
        self,
        network: Between,
        factory: Callable[[], asyncio.BaseProtocol],
        name: tuple[str, int],
        delay_ms: Callable[[str], int],
    ) -> None:
        self.delay_ms = delay_ms
        self.factory = factory
        self.name = name
        self.context = contextvars.copy_context()
        self.process = running_process()
        self.backlog = 0
        """Connections that the kernel has made and the process has not accepted."""
        self._network = network

    pending_count = 0

    @property
    def sockets(self) -> tuple[Listener, ...]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self.name

    def close(self) -> None:
        if self._network.listeners.get(self.name) is self:
            del self._network.listeners[self.name]

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class End(asyncio.Transport):
    """One end of a connection. Its protocol is called in the context of its process."""

    peer: End
    protocol: asyncio.BaseProtocol

    def __init__(
        self, network: Between, number: int, process: Process, context: contextvars.Context
    ) -> None:
        super().__init__()
        self.network = network
        self.number = number
        self.process = process
        self.context = context
        self.is_lost = False
        self._loop = network.loop
        self._outgoing = bytearray()
        self._transit: deque[bytes | Mark] = deque()
        self._stalled = 0
        self._last_arrival = 0.0
        self._unacked = 0
        self._acks: deque[tuple[float, int]] = deque()
        self._is_ack_awaited = False
        self._received: deque[bytes | Mark] = deque()
        self._is_delivery_due = False
        self._is_open = False
        self._is_reading = True
        self._is_closing = False
        self._is_ending = False
        self._end_sent = False
        self._high, self._low = 64 << 10, 16 << 10
        self._is_writing_paused = False

    # What protocols call

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer.process.machine, self.number) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return len(self._outgoing)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._deliver_soon()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_ending:
            return
        self._outgoing += data
        self._push()
        if len(self._outgoing) > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self.network.sometimes("writing had to pause")
            cast("asyncio.Protocol", self.protocol).pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._is_ending = True
        self._push()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = self._is_ending = True
            self._push()

    def abort(self) -> None:
        if not self.is_lost:
            self.drop()
            self._lose(None)

    # What the network does

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """The process has the connection: what has come meanwhile is delivered."""
        self.protocol = protocol
        protocol.connection_made(self)
        self._is_open = True

    def drop(self) -> None:
        """Ends our side as a kernel does: what is unsent is gone, what travels arrives."""
        self._outgoing.clear()
        if not self._end_sent:
            self._end_sent = True
            self._send(self.network.rng.choice((Mark.FIN, Mark.RST)))

    def reset(self) -> None:
        """The connection broke; what was received and not read is lost with it."""
        if not self.is_lost:
            self.network.sometimes("a connection was reset")
            self._outgoing.clear()
            self._received.clear()
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def resume(self) -> None:
        """The way is free again: what was swallowed is sent once more."""
        for _ in range(self._stalled):
            self._travel()
        self._stalled = 0
        if self._outgoing:
            self._await_ack()

    def _push(self) -> None:
        """Puts on the way what the window has room for, and the end behind it."""
        outgoing = self._outgoing
        network = self.network
        if not self._is_ack_awaited:
            self._take_acks()
        while outgoing:
            size = min(len(outgoing), network.segment_bytes)
            if self._unacked and self._unacked + size > network.window_bytes:
                # A part would fit; but a sender that fills every gap ends with single bytes.
                break
            chunk = bytes(outgoing[:size])
            del outgoing[:size]
            self._unacked += size
            self._send(chunk)
        if outgoing:
            self._await_ack()
        else:
            if self._is_ending and not self._end_sent:
                self._end_sent = True
                self._send(Mark.FIN)
            if self._is_closing:
                self._lose(None)

    def _send(self, item: bytes | Mark) -> None:
        self._transit.append(item)
        self._travel()

    def _travel(self) -> None:
        latency_s = self.network.latency_s(self.process.machine, self.peer.process.machine)
        self._last_arrival = max(self._last_arrival, self._loop.now_s + latency_s)
        self._loop.at(self._last_arrival, self._arrive, context=self.network.context)

    def _arrive(self) -> None:
        peer = self.peer
        if self.network.is_cut(self.process.machine, peer.process.machine):
            self._stalled += 1
            self.network.sometimes("a message was swallowed")
            return
        item = self._transit.popleft()
        self.network.note_arrival(self.number, self.process.name, peer.process.name, item)
        if item is Mark.RST:
            self._loop.call_soon(peer.reset, context=peer.context)
        elif not peer.is_lost and peer.process.is_alive:
            peer._received.append(item)
            peer._deliver_now()
        elif item is not Mark.FIN:
            peer._send(Mark.RST)

    def _deliver_soon(self) -> None:
        if not self._is_delivery_due:
            self._is_delivery_due = True
            self._loop.call_soon(self._deliver, context=self.context)

    def _deliver_now(self) -> None:
        """Delivers what has just arrived, as the selector of a process does that is not busy."""
        process = self.process
        if process.runs and not self._is_delivery_due and self._is_open:
            self._loop.run_in(process, self.context, self._deliver)
        else:
            self._deliver_soon()

    def _deliver(self) -> None:
        self._is_delivery_due = False
        if self._is_closing or not self._is_reading or not self._received:
            return
        item = self._received.popleft()
        if isinstance(item, Mark):
            if not cast("asyncio.Protocol", self.protocol).eof_received():
                self.close()
            return
        size = self.network.read_size(len(item))
        protocol = self.protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(size, len(buffer))
            buffer[:size] = item[:size]
        if size < len(item):
            self._received.appendleft(item[size:])
        self.peer._ack(size)
        if self._received:
            self._deliver_soon()
        if isinstance(protocol, asyncio.BufferedProtocol):
            protocol.buffer_updated(size)
        else:
            cast("asyncio.Protocol", protocol).data_received(item[:size])

    # Most acks let nothing more out: only one that is awaited has a timer, and the others are taken
    # when something is written next.
    def _ack(self, size: int) -> None:
        """Has an ack travel to us, behind those that are on their way."""
        earliest_s = self._acks[-1][0] if self._acks else 0.0
        latency_s = self.network.latency_s(self.peer.process.machine, self.process.machine)
        acked_s = max(earliest_s, self._loop.now_s + latency_s)
        self._acks.append((acked_s, size))
        if self._outgoing:
            self._await_ack()

    def _await_ack(self) -> None:
        if self._acks and not self._is_ack_awaited and not self.is_lost:
            if self.network.is_cut(self.peer.process.machine, self.process.machine):
                # `resume` asks again.
                return
            self._is_ack_awaited = True
            self._loop.at(self._acks[0][0], self._acked, context=self.context)

    def _acked(self) -> None:
        self._is_ack_awaited = False
        if self.is_lost:
            return
        self._push()
        if self._is_writing_paused and len(self._outgoing) <= self._low:
            self._is_writing_paused = False
            cast("asyncio.Protocol", self.protocol).resume_writing()

    def _take_acks(self) -> None:
        if self._acks and self.network.is_cut(self.peer.process.machine, self.process.machine):
            return
        while self._acks and self._acks[0][0] <= self._loop.now_s:
            self._unacked -= self._acks.popleft()[1]

    def _lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = self._is_closing = True
            self.network.forget(self)
            self._loop.call_soon(self.protocol.connection_lost, error, context=self.context)
