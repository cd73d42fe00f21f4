"""Connections to the other brokers of the cluster: made when they are needed, one for each channel.

    connect ──► Hello ──► BrokerHello ──► calls, until the first fault

BrokerHello makes sure that the port belongs to the broker that is meant, and to this cluster. A
connection that has ended is made anew by the next call; between two attempts passes `RETRY_MS`, and
up to `UNTRUSTED_RETRY_MS` where TLS fails again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_hello import BrokerHelloRequest, BrokerHelloResponse
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.peers.calls import (
    Channel,
    PeerNotListening,
    PeerUnreachable,
    PeerUntrusted,
    refusal,
)
from millrace_server.peers.failed_attempt import failed_attempt
from millrace_wire.connection import Address, Connection, ConnectionConfig, connect
from millrace_wire.errors import RequestFailed, RequestRefused

log = get_logger("millrace.peers")
M = TypeVar("M", bound=Message)
Key = tuple[int, Channel]
SOFTWARE_VERSION = version("millrace")
"""Read once: it is a file."""
CONNECT_TIMEOUT_MS = 2_000
REFUSED_LINE_MS = 60_000
RETRY_MS = 100
"""A broker that could not be reached is not tried again sooner."""
UNTRUSTED_RETRY_MS = 1_000
"""A handshake of TLS takes milliseconds of both brokers, and neither looks at its files sooner."""
RESPONSE_BYTES_MAX = 96 << 20
"""A change of the metadata is one batch, and a fetch brings at least one."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The last attempt to connect. The next one may begin at `retry_ms`, after a pause."""

    error: PeerUnreachable
    retry_ms: int
    pause_ms: int


class PeerConnections:
    """Implements `PeerCalls`, until `close`."""

    def __init__(
        self,
        env: Environment,
        *,
        address_of: Callable[[int], Address | None],
        hello: Callable[[int], BrokerHelloRequest],
        has_tls: bool = False,
    ) -> None:
        """`hello(broker_id)` is how this broker introduces itself to another one. `has_tls`: its
        `Net` connects with TLS."""
        self._env = env
        self._address_of = address_of
        self._hello = hello
        self._has_tls = has_tls
        self._connections: dict[Key, Connection] = {}
        self._connecting: dict[Key, asyncio.Task[Connection]] = {}
        self._failed: dict[Key, FailedAttempt] = {}
        self.refusal: ApiError | None = None
        """See `PeerCalls.refusal`."""
        self._refused_lines = LogRateLimiter(env.clock, lines=1, period_ms=REFUSED_LINE_MS)
        self._is_closed = False

    async def call(
        self,
        broker_id: int,
        channel: Channel,
        request: Message,
        response: type[M],
        *,
        timeout_ms: int,
    ) -> M:
        """See `PeerCalls.call`."""
        connection = await self._connection((broker_id, channel))
        return await _call(connection, request, response, timeout_ms=timeout_ms)

    async def is_process_gone(self, broker_id: int) -> bool:
        """See `PeerCalls.is_process_gone`."""
        try:
            await self._connection((broker_id, Channel.CONTROL))
        except PeerNotListening:
            return True
        except PeerUnreachable:
            return False
        return False

    async def close(self) -> None:
        """Closes all connections; calls fail from now on."""
        self._is_closed = True
        for connecting in [*self._connecting.values()]:
            connecting.cancel()
            await asyncio.wait([connecting])
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _connection(self, key: Key) -> Connection:
        if self._is_closed:
            raise PeerUnreachable("the broker is stopping")
        known = self._connections.get(key)
        if known is not None and known.fault is None:
            return known
        connecting = self._connecting.get(key)
        if connecting is None:
            failed = self._failed.get(key)
            if failed is not None and self._env.clock.monotonic_ms() < failed.retry_ms:
                raise type(failed.error)(str(failed.error))
            connecting = self._env.spawn.task(self._connect(key), name="connect to broker")
            self._connecting[key] = connecting
            connecting.add_done_callback(lambda task: self._end(key, task))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled():
                raise PeerUnreachable("the broker is stopping") from None
            raise

    def _end(self, key: Key, task: asyncio.Task[Connection]) -> None:
        del self._connecting[key]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._failed.pop(key, None)
            self._connections[key] = task.result()
        elif isinstance(error, PeerUnreachable):
            self._failed[key] = self._failed_attempt(key, error)

    def _failed_attempt(self, key: Key, error: PeerUnreachable) -> FailedAttempt:
        previous, pause_ms = self._failed.get(key), RETRY_MS
        if previous is not None and {type(error), type(previous.error)} == {PeerUntrusted}:
            # Once alone, it may have been a broker that was about to end.
            pause_ms = min(2 * previous.pause_ms, UNTRUSTED_RETRY_MS)
            refused = ApiError(ErrorCode.NOT_CONTROLLER, str(error))
            self._note_refusal(key[0], refused, reason=str(error))
        return FailedAttempt(error, self._env.clock.monotonic_ms() + pause_ms, pause_ms)

    async def _connect(self, key: Key) -> Connection:
        broker_id, channel = key
        address = self._address_of(broker_id)
        if address is None:
            raise PeerUnreachable(f"the address of broker {broker_id} is not known")
        config = ConnectionConfig(
            software="millrace-broker",
            software_version=SOFTWARE_VERSION,
            client_id=f"broker-{self._hello(broker_id).broker_id}-{channel.value}",
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            receive_bytes_max=RESPONSE_BYTES_MAX,
        )
        try:
            connection = await connect(self._env.net.connect, address, config)
        except RequestFailed as error:
            raise failed_attempt(error, broker_id, has_tls=self._has_tls) from error
        try:
            await self._introduce(connection, broker_id)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _introduce(self, connection: Connection, broker_id: int) -> None:
        try:
            hello = await _call(
                connection,
                self._hello(broker_id),
                BrokerHelloResponse,
                timeout_ms=CONNECT_TIMEOUT_MS,
            )
            if hello.error_code != ErrorCode.NONE:
                raise refusal(hello.error_code, hello.error_message)
        except ApiError as refused:
            self._note_refusal(broker_id, refused, reason=str(refused))
            raise PeerUnreachable(str(refused)) from refused
        self.refusal = None

    def _note_refusal(self, broker_id: int, refused: ApiError, *, reason: str) -> None:
        self.refusal = refused
        if self._refused_lines.take() is not None:
            log.error("no connection to another broker", broker=broker_id, reason=reason)


async def _call(
    connection: Connection, request: Message, response: type[M], *, timeout_ms: int
) -> M:
    try:
        return await connection.call(request, response, timeout_ms=timeout_ms)
    except RequestRefused as error:
        raise refusal(error.error_code, str(error)) from error
    except RequestFailed as error:
        raise PeerUnreachable(str(error)) from error
