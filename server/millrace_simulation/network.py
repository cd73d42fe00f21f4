"""A network in memory: hosts, latency, split reads, resets, and links that can be disturbed.

Owns what lies between two transports (`transport`). Bytes of one connection arrive in order and
once, as TCP has it; nothing else is promised. Connections overtake each other. A link has one
direction: it can be cut, slow, or lose segments, which are sent again. A cut swallows what is sent
until it heals; then it arrives, late. A killed process resets or ends its connections. A machine
without power says nothing, and answers what reaches it after it came back with a reset. For a
paused process the kernel goes on taking connections and bytes, up to its bounds.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millrace_server.environment.seams import at_once
from millrace_simulation.loop import Process, SimLoop, running_process
from millrace_simulation.transport import End, Listener, Mark

SYN_RETRY_S = 1.0
SYN_TRIES = 60
BACKLOG = 100
"""Connections that wait to be accepted; further ones are tried again later."""
PORT_FIRST = 30_000
LOOPBACK = "127.0.0.1"
KEEPALIVE_S = 20.0
"""After so long without a word the kernel of a millrace client asks for its peer."""
RETRANSMIT_S = 0.2
"""After this long a segment that was lost is sent again: Linux' least retransmission timeout."""


@dataclass(frozen=True, slots=True)
class Link:
    """How what one machine sends to another fares. `loss`: how many segments of one are lost."""

    is_cut: bool = False
    delay_s: float = 0.0
    loss: float = 0.0


class SimNetwork:
    """All machines and the links between them. `latency_max_s` may be changed at any time.

    A machine has a name. One that others connect to has an address too, its host.
    """

    def __init__(
        self,
        loop: SimLoop,
        rng: random.Random,
        *,
        note: Callable[[str], None],
        note_arrival: Callable[[int, str, str, bytes | Mark], None],
        sometimes: Callable[[str], None],
        latency_max_s: float,
        window_bytes: int,
        segment_bytes: int,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.note = note
        self.note_arrival = note_arrival
        self.sometimes = sometimes
        self.latency_max_s = latency_max_s
        self.window_bytes = window_bytes
        self.segment_bytes = segment_bytes
        self.context = contextvars.Context()
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.ends: dict[int, End] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._dark: set[str] = set()
        self._machines: dict[str, str] = {}
        self._made = 0

    def add_host(self, host: str, machine: str) -> None:
        """Gives a machine an address."""
        assert host not in self._machines, f"{self._machines[host]} has {host}"
        self._machines[host] = machine

    def latency_s(self, source: str, target: str) -> float:
        """How long the next segment travels; now and then one takes twenty times as long."""
        latency_s = self.rng.random() * self.latency_max_s
        if self.rng.random() < 0.01:
            latency_s *= 20
        link = self._links.get((source, target)) if self._links else None
        if link is not None:
            latency_s += link.delay_s
            while link.loss and self.rng.random() < link.loss:
                self.sometimes("a segment was lost and sent again")
                latency_s += RETRANSMIT_S
        return latency_s

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
        has_tls: bool = False,
        is_for_brokers: bool = False,
        delay_ms: Callable[[str], int] = at_once,
    ) -> Any:
        """See `seams.Net`; a protocol comes as soon as the process runs."""
        if has_tls:
            raise OSError(errno.EPROTONOSUPPORT, "TLS is not simulated")
        machine = running_process().machine
        if self._machine_at(host, machine) != machine:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        port = port or PORT_FIRST + len(self.listeners)
        name = (host, port)
        if name in self.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = self.listeners[name] = Listener(self, factory, name, delay_ms)
        return listener

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See `seams.Net` and `asyncio.loop.create_connection`."""
        process = running_process()
        source, target = process.machine, self._machine_at(host, process.machine)
        if target is None:
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        for _ in range(SYN_TRIES):
            await asyncio.sleep(self.latency_s(source, target) + self.latency_s(target, source))
            listener = self.listeners.get((host, port))
            is_full = listener is not None and listener.backlog >= BACKLOG
            if is_full or self.is_cut(source, target) or self.is_cut(target, source):
                await asyncio.sleep(SYN_RETRY_S)
                continue
            if listener is None:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
            return self._connect(process, factory, listener)
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    def _machine_at(self, host: str, asking: str) -> str | None:
        """The machine that has an address, as another one sees it."""
        return asking if host == LOOPBACK else self._machines.get(host)

    def _connect(
        self, process: Process, factory: Callable[[], asyncio.BaseProtocol], listener: Listener
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        self._made += 2
        near = End(self, self._made, process, contextvars.copy_context())
        far = End(self, self._made + 1, listener.process, listener.context.copy())
        near.peer, far.peer = far, near
        self.ends[near.number], self.ends[far.number] = near, far
        self.note(f"#{near.number} {process.name} connects to {listener.process.name}")
        listener.backlog += 1

        def admit() -> None:
            listener.backlog -= 1
            far.open(listener.factory())

        def accept() -> None:
            if delay_ms := listener.delay_ms(process.machine):
                self.loop.call_later(delay_ms / 1000, admit, context=far.context)
            else:
                admit()

        self.loop.call_soon(accept, context=far.context)
        near.open(factory())
        return near, near.protocol

    def forget(self, end: End) -> None:
        """Drops an end that is lost."""
        self.ends.pop(end.number, None)

    # Faults

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one machine to the other."""
        if target in self._dark:
            return True
        link = self._links.get((source, target)) if self._links else None
        return link is not None and link.is_cut

    def disturb(self, source: str, target: str, link: Link) -> None:
        """Has what one machine sends to the other fare so, until `heal`."""
        self._links[source, target] = link

    def heal(self) -> None:
        """Ends all disturbances; what was swallowed is sent again."""
        self._links.clear()
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
                    continue
                # The machine that is left asks for the one that is dark, or knows nothing any more.
                silent = end.peer
                until_s = self.loop.now_s + KEEPALIVE_S
                self.loop.at(until_s, silent.reset, context=silent.context)
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
