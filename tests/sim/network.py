"""A network in memory: latency, split reads, full windows, resets, and cuts that heal.

Owns what lies between two transports. Bytes of one connection arrive in order and once, as TCP
has it; nothing else is promised. Connections overtake each other. A cut swallows what is sent
until it heals; then it arrives, late. A killed process resets or ends its connections. A machine
without power says nothing, and answers what reaches it after it came back with a reset.

    write -> outgoing -> (window) -> transit -> (latency) -> received -> (reading) -> protocol
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import errno
import random
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from tests.sim.loop import Process, SimLoop, running_process

SYN_RETRY_S = 1.0
SYN_TRIES = 60
PORT_FIRST = 30_000


class Mark(enum.Enum):
    """What travels besides bytes."""

    FIN = enum.auto()
    RST = enum.auto()


class Listener:
    """A port on which a process takes connections; also the socket it would have."""

    def __init__(
        self,
        network: SimNetwork,
        factory: Callable[[], asyncio.BaseProtocol],
        name: tuple[str, int],
    ) -> None:
        self.factory = factory
        self.name = name
        self.context = contextvars.copy_context()
        self.process = running_process()
        self._network = network

    pending_count = 0

    @property
    def sockets(self) -> tuple[Listener, ...]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self.name

    def close(self) -> None:
        if self._network.listeners.get(self.name[1]) is self:
            del self._network.listeners[self.name[1]]

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class End(asyncio.Transport):
    """One end of a connection. Its protocol is called in the context of its process."""

    peer: End
    protocol: asyncio.BaseProtocol

    def __init__(
        self, network: SimNetwork, number: int, process: Process, context: contextvars.Context
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
        self._last_arrival = max(self._last_arrival, self._loop.time() + self.network.latency_s())
        self._loop.call_at(self._last_arrival, self._arrive, context=self.network.context)

    def _arrive(self) -> None:
        peer = self.peer
        if self.network.is_cut(self.process.machine, peer.process.machine):
            self._stalled += 1
            self.network.sometimes("a message was swallowed")
            return
        item = self._transit.popleft()
        what = item.name if isinstance(item, Mark) else f"{len(item)} {zlib.crc32(item):08x}"
        self.network.note(f"#{self.number} {self.process.name} > {peer.process.name} {what}")
        if item is Mark.RST:
            self._loop.call_soon(peer.reset, context=peer.context)
        elif not peer.is_lost and peer.process.is_alive:
            peer._received.append(item)
            peer._deliver_soon()
        elif item is not Mark.FIN:
            peer._send(Mark.RST)

    def _deliver_soon(self) -> None:
        if not self._is_delivery_due:
            self._is_delivery_due = True
            self._loop.call_soon(self._deliver, context=self.context)

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
        acked_s = max(earliest_s, self._loop.time() + self.network.latency_s())
        self._acks.append((acked_s, size))
        if self._outgoing:
            self._await_ack()

    def _await_ack(self) -> None:
        if self._acks and not self._is_ack_awaited and not self.is_lost:
            self._is_ack_awaited = True
            self._loop.call_at(self._acks[0][0], self._acked, context=self.context)

    def _acked(self) -> None:
        self._is_ack_awaited = False
        if self.is_lost:
            return
        self._push()
        if self._is_writing_paused and len(self._outgoing) <= self._low:
            self._is_writing_paused = False
            cast("asyncio.Protocol", self.protocol).resume_writing()

    def _take_acks(self) -> None:
        while self._acks and self._acks[0][0] <= self._loop.time():
            self._unacked -= self._acks.popleft()[1]

    def _lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = self._is_closing = True
            self.network.forget(self)
            self._loop.call_soon(self.protocol.connection_lost, error, context=self.context)


class SimNetwork:
    """All machines and the lines between them. `latency_max_s` may be changed at any time."""

    def __init__(
        self,
        loop: SimLoop,
        rng: random.Random,
        *,
        note: Callable[[str], None],
        sometimes: Callable[[str], None],
        latency_max_s: float,
        window_bytes: int,
        segment_bytes: int,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.note = note
        self.sometimes = sometimes
        self.latency_max_s = latency_max_s
        self.window_bytes = window_bytes
        self.segment_bytes = segment_bytes
        self.context = contextvars.Context()
        self.listeners: dict[int, Listener] = {}
        self.ends: dict[int, End] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._dark: set[str] = set()
        self._homes: dict[int, str] = {}
        self._made = 0

    def latency_s(self) -> float:
        """How long the next segment travels; now and then one takes twenty times as long."""
        latency_s = self.rng.random() * self.latency_max_s
        return latency_s * 20 if self.rng.random() < 0.01 else latency_s

    def read_size(self, size: int) -> int:
        """How much of `size` bytes the next read gets."""
        return self.rng.randint(1, size) if self.rng.random() < 0.2 else size

    # Doors

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        silent_ms_max: int,
        first_frame_bytes_max: int,
    ) -> Any:
        """See `host.Net`; a protocol comes at once."""
        port = port or PORT_FIRST + len(self.listeners)
        if port in self.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = self.listeners[port] = Listener(self, factory, (host, port))
        self._homes[port] = listener.process.machine
        return listener

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See `seams.Net` and `asyncio.loop.create_connection`.

        All machines share the ports of one address.
        """
        process = running_process()
        for _ in range(SYN_TRIES):
            await asyncio.sleep(2 * self.latency_s())
            listener = self.listeners.get(port)
            machine = self._homes.get(port, process.machine)
            if self.is_cut(process.machine, machine) or self.is_cut(machine, process.machine):
                await asyncio.sleep(SYN_RETRY_S)
                continue
            if listener is None:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
            return self._connect(process, factory, listener)
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    def _connect(
        self, process: Process, factory: Callable[[], asyncio.BaseProtocol], listener: Listener
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        self._made += 2
        near = End(self, self._made, process, contextvars.copy_context())
        far = End(self, self._made + 1, listener.process, listener.context.copy())
        near.peer, far.peer = far, near
        self.ends[near.number], self.ends[far.number] = near, far
        self.note(f"#{near.number} {process.name} connects to {listener.process.name}")

        def accept() -> None:
            far.protocol = listener.factory()
            far.protocol.connection_made(far)

        self.loop.call_soon(accept, context=far.context)
        near.protocol = factory()
        near.protocol.connection_made(near)
        return near, near.protocol

    def forget(self, end: End) -> None:
        """Drops an end that is lost."""
        self.ends.pop(end.number, None)

    # Faults

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one machine to the other."""
        return target in self._dark or (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Swallows what one machine sends to the other, until `heal`."""
        self._cuts.add((source, target))

    def heal(self) -> None:
        """Ends all cuts; what was swallowed is sent again."""
        self._cuts.clear()
        self._resume()

    def break_one(self) -> None:
        """Resets one connection, from both sides."""
        if self.ends:
            end = self.ends[self.rng.choice(sorted(self.ends))]
            for one in (end, end.peer):
                self.loop.call_soon(one.reset, context=one.context)

    def process_died(self, process: Process, *, machine_too: bool) -> None:
        """The kernel closes what the process had open; without power there is no kernel."""
        for listener in list(self.listeners.values()):
            if listener.process is process:
                listener.close()
        for end in list(self.ends.values()):
            if end.process is process:
                self.forget(end)
                end.is_lost = True
                if not machine_too:
                    end.drop()
        if machine_too:
            self._dark.add(process.machine)

    def machine_is_up(self, machine: str) -> None:
        """It has power again; what reaches it for a process that is gone is answered by a reset."""
        self._dark.discard(machine)
        self._resume()

    def _resume(self) -> None:
        for end in list(self.ends.values()):
            end.resume()
            end.peer.resume()
