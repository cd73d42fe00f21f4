"""The listening side: takes connections in, watches their time limits, and drains.

Owns the listening socket, the set of connections, what they share, and the one timer for all
time limits. Knows no dialect.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from millrace_server.environment.seams import ColdReads, Environment, Listener, at_once
from millrace_server.limits import READ_BYTES, Limits
from millrace_server.listeners import PLAIN, Address, ListenerConfig
from millrace_server.logs import get_logger
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.net.connection import Connection
from millrace_server.net.deferred_release import DeferredRelease
from millrace_server.net.dialect import Dialect
from millrace_server.net.memory_budget import MemoryBudget
from millrace_server.net.shared import Shared
from millrace_server.net.traffic import Traffic
from millrace_server.principal_shares import NO_SHARES, ShareRule, Shares
from millrace_server.statistics import Registry, metrics
from millrace_wire.frame_reader import Scratch

log = get_logger("millrace.connection")
SWEEP_MS = 1_000
"""Every connection is looked at once in this time; limits are noticed that much late at most."""
_TICKS_PER_SWEEP = 20
"""A sweep is spread out: 10,000 connections at once would hold the loop for 20 ms."""
_TICK_S = SWEEP_MS / 1000 / _TICKS_PER_SWEEP
_FEW = 200
"""So many are looked at in one go, well under a millisecond: an idle broker wakes once a second."""

_ANY_LISTENER = ListenerConfig(PLAIN, ("127.0.0.1", 0))
_STOPPING = "the broker is stopping"


class ListenError(Exception):
    """The server cannot listen on the address; the message says what to do."""


class Server:
    """Listeners and their connections, on the loop that constructs it.

    Lives from `start` to the end of `drain`. Invariant: every connection that was made and not
    lost is in exactly one of `connections` and the refused ones.
    """

    def __init__(
        self,
        env: Environment,
        limits: Limits | None = None,
        *,
        cold_reads: ColdReads | None = None,
        scheduler: FairScheduler | None = None,
        statistics: Registry | None = None,
        delay_ms: Callable[[str], int] = at_once,
        shares: ShareRule = NO_SHARES,
    ) -> None:
        """`delay_ms`: how long a connection from an address waits until it is taken."""
        self._env = env
        self._delay_ms = delay_ms
        self._loop = asyncio.get_running_loop()
        self.limits = limits or Limits()
        self.memory = MemoryBudget(
            self.limits.request_memory_bytes, overdraft=self.limits.frame_bytes_max
        )
        self.connections: dict[Connection, str | None] = {}
        """In the order they came, with the principal that each counts for."""
        self._shares = Shares(shares, self.limits.connections_max)
        self._unproved: dict[Connection, None] = {}
        """Those that have to authenticate first, the oldest first. They count for no principal."""
        self.connections_accepted = 0
        self.connections_refused = 0
        self._refused: dict[Connection, None] = {}
        self._unseen: deque[Connection] = deque()
        self._listeners: list[Listener] = []
        self._tick: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        self._draining = False
        scheduler = scheduler or FairScheduler(self._loop, env.clock)
        statistics = statistics or Registry()
        self._register(statistics)
        self._shared = Shared(
            loop=self._loop,
            dialects=(),
            limits=self.limits,
            clock=env.clock,
            spawn=env.spawn,
            scratch=Scratch(READ_BYTES),
            memory=self.memory,
            scheduler=scheduler,
            deferred_release=DeferredRelease(scheduler),
            cold_reads=cold_reads,
            traffic=Traffic(statistics),
        )

    def _register(self, statistics: Registry) -> None:
        memory = self.memory
        statistics.gauge(metrics.CONNECTIONS, lambda: len(self.connections), "open")
        statistics.gauge(
            metrics.CONNECTIONS,
            lambda: sum(each.pending_count for each in self._listeners),
            "pending",
        )
        statistics.gauge(metrics.ACCEPTED, lambda: self.connections_accepted)
        statistics.gauge(metrics.REFUSED, lambda: self.connections_refused)
        statistics.gauge(metrics.REQUEST_MEMORY, lambda: memory.used)
        statistics.gauge(metrics.REQUEST_MEMORY_LIMIT, lambda: memory.size)
        statistics.gauge(metrics.REQUEST_MEMORY_WAITING, lambda: memory.waiting_count)

    async def start(
        self, dialects: Sequence[Dialect], listeners: Sequence[ListenerConfig]
    ) -> list[Address]:
        """Listens for peers that speak one of the dialects; returns the addresses bound.

        Port 0 leaves the port to the system. Raises `ListenError`; nothing listens then.
        """
        self._shared.dialects = dialects
        try:
            bound = [await self._listen(listener) for listener in listeners]
        except BaseException:
            for opened in self._listeners:
                opened.close()
            self._listeners.clear()
            raise
        self._draining = False
        self._tick = self._loop.call_later(_TICK_S, self._on_tick)
        return bound

    def reload(self, limits: Limits) -> None:
        """Takes over the limits that reload: how many connections there may be from now on.

        Those that are open stay.
        """
        self.limits = limits
        self._shares.resize(limits.connections_max)

    @property
    def is_listening(self) -> bool:
        """Whether peers may connect."""
        return bool(self._listeners) and not self._draining

    async def _listen(self, listener: ListenerConfig) -> Address:
        try:
            listening = await self._env.net.listen(
                partial(self.connection, listener),
                *listener.address,
                silent_ms_max=self.limits.first_frame_timeout_ms,
                first_frame_bytes_max=self.limits.frame_bytes_max_before_hello,
                has_tls=listener.is_tls,
                is_for_brokers=listener.is_for_brokers,
                delay_ms=self._delay_ms,
            )
        except OSError as error:
            raise listen_error(*listener.address, error) from error
        self._listeners.append(listening)
        host, port, *_ = listening.sockets[0].getsockname()
        return host, port

    def connection(self, listener: ListenerConfig = _ANY_LISTENER) -> Connection:
        """A new connection for a transport; the protocol factory of a listener."""
        return Connection(self._shared, self, listener)

    def sweep(self) -> None:
        """Looks at every connection's time limits now."""
        now_ms = self._env.clock.monotonic_ms()
        for connection in [*self.connections, *self._refused]:
            connection.check_timeouts(now_ms)

    async def drain(self, timeout_ms: int) -> None:
        """Stops: no new connections, answers to the requests at hand, then closes.

        Connections that are not done after `timeout_ms` are aborted. Returns when all are lost.
        """
        self._draining = True
        for listener in self._listeners:
            listener.close()
        for connection in [*self.connections, *self._refused]:
            connection.finish(_STOPPING)
        if self._tick is not None:
            self._tick.cancel()
            self._on_drain_tick()
        if not await self._emptied(timeout_ms):
            for connection in [*self.connections, *self._refused]:
                connection.abort("the broker is stopping and its time to drain has passed")
            await self._emptied(None)
        self._shared.deferred_release.release_all()
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    # What a connection calls

    def opened(self, connection: Connection) -> str:
        """See `Owner.opened`."""
        must_prove = connection.listener.is_sasl
        principal = None if must_prove else connection.principal
        refusal = self._refusal(principal)
        if refusal:
            self.connections_refused += 1
            self._refused[connection] = None
            if len(self._refused) > self.limits.connections_refused_max:
                connection.abort("too many connections, even for a refusal")
            return refusal
        if must_prove:
            self._await_proof(connection)
        self.connections[connection] = principal
        self._shares.add(principal, 1)
        self.connections_accepted += 1
        if self._draining:
            # It was accepted in the same turn of the loop that closed the listener.
            connection.finish(_STOPPING)
        return ""

    def admit(self, connection: Connection, principal: str) -> str:
        """See `Owner.admit`. A connection that authenticates again counts already."""
        if connection not in self._unproved:
            return ""
        refusal = self._share_refusal(principal)
        if refusal:
            self.connections_refused += 1
        else:
            del self._unproved[connection]
            self.connections[connection] = principal
            self._shares.add(principal, 1)
        return refusal

    def lost(self, connection: Connection) -> None:
        """See `Owner.lost`."""
        self._shares.add(self.connections.pop(connection, None), -1)
        self._unproved.pop(connection, None)
        self._refused.pop(connection, None)
        log.debug("connection closed", peer=connection.peer, reason=connection.close_reason)
        empty = self._empty
        if empty is not None and not (self.connections or self._refused or empty.done()):
            empty.set_result(None)

    def _refusal(self, principal: str | None) -> str:
        most = self.limits.connections_max
        if len(self.connections) >= most:
            return f"The broker has {most} connections, its limit; try again later"
        return self._share_refusal(principal)

    def _share_refusal(self, principal: str | None) -> str:
        if self._shares.has_room(principal):
            return ""
        return (
            f"{principal} has {self._shares.held(principal)} connections to this broker, its share "
            "of limits.connections_max; close some, or raise the broker's principal_share_percent"
        )

    def _await_proof(self, connection: Connection) -> None:
        """Keeps a connection that has to authenticate. The oldest one makes room: a client that
        can authenticate does so at once, and one that cannot must not keep it out."""
        if len(self._unproved) >= self._shares.most:
            oldest = next(iter(self._unproved))
            del self._unproved[oldest]
            oldest.abort("it has not authenticated, and makes room for another one")
        self._unproved[connection] = None

    # Time

    def _on_tick(self) -> None:
        """Looks at a part of the connections, and at all of them every `SWEEP_MS`."""
        unseen = self._unseen
        if not unseen:
            unseen.extend(self.connections)
            unseen.extend(self._refused)
        now_ms = self._env.clock.monotonic_ms()
        everyone = len(self.connections) + len(self._refused)
        if everyone <= _FEW:
            while unseen:
                unseen.popleft().check_timeouts(now_ms)
            self._tick = self._loop.call_later(SWEEP_MS / 1000, self._on_tick)
            return
        for _ in range(min(len(unseen), everyone // _TICKS_PER_SWEEP + 1)):
            unseen.popleft().check_timeouts(now_ms)
        self._tick = self._loop.call_later(_TICK_S, self._on_tick)

    def _on_drain_tick(self) -> None:
        """Looks at all connections, and again when those that linger have lingered enough."""
        now_ms = self._env.clock.monotonic_ms()
        for connection in [*self.connections, *self._refused]:
            connection.check_timeouts(now_ms)
        interval_ms = min(SWEEP_MS, self.limits.linger_ms)
        self._tick = self._loop.call_later(interval_ms / 1000, self._on_drain_tick)

    async def _emptied(self, timeout_ms: int | None) -> bool:
        """Waits until every connection is lost; False when the time ran out first."""
        if not self.connections and not self._refused:
            return True
        self._empty = self._loop.create_future()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._empty
        except TimeoutError:
            return False
        finally:
            self._empty = None
        return True


def listen_error(address: str, port: int, error: OSError) -> ListenError:
    """What an address cannot be listened on for, with what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            why = "another process listens there; stop it or choose another port"
        case errno.EACCES:
            why = "ports below 1024 need privileges; choose a higher one"
        case errno.EADDRNOTAVAIL:
            why = "this machine does not have that address; use one of its own, or 0.0.0.0 for all"
        case _:
            why = error.strerror or str(error)
    return ListenError(f"cannot listen on {address} port {port}: {why}")
