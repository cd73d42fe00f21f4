"""A connection to one broker, with the errors of the clients.

Owns the translation of `millrace_wire`'s errors, and how a client introduces itself. The
connection itself is `millrace_wire`'s.
"""

from __future__ import annotations

import asyncio
import functools
import math
import ssl
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from millrace._broker_error import broker_error
from millrace._cluster.login import Login
from millrace.errors import (
    BufferFull,
    Closed,
    ConnectionFailed,
    ConnectionLost,
    MessageTooLarge,
    MillraceError,
    ProtocolViolation,
    RequestTimedOut,
    UnsupportedVersion,
)
from millrace_protocol.errors import ErrorCode
from millrace_protocol.schema import Message
from millrace_wire import errors as wire
from millrace_wire.connection import Address, ConnectionConfig, connect
from millrace_wire.connection import Connection as WireConnection
from millrace_wire.frame_buffers import KEPT_BYTES_MAX
from millrace_wire.frame_reader import Scratch

M = TypeVar("M", bound=Message)
SESSION_USED = 0.85
"""A client authenticates again when so much of its session is over; Kafka's does between 0.85 and
0.95."""

_ERRORS: dict[type[wire.RequestFailed], type[MillraceError]] = {
    wire.ConnectFailed: ConnectionFailed,
    wire.ConnectionLost: ConnectionLost,
    wire.ConnectionClosed: Closed,
    wire.RequestTimedOut: RequestTimedOut,
    wire.NotSentInTime: RequestTimedOut,
    wire.TooManyRequests: BufferFull,
    wire.ProtocolViolation: ProtocolViolation,
}
"""The errors that mean the same to a user of the clients. The others say more there."""


@functools.cache
def software_version() -> str:
    """The installed version of this library."""
    try:
        return version("millrace")
    except PackageNotFoundError:
        return "unknown"


class Connection:
    """A live connection; make one with `open`. `node_id` is the broker's, from Hello."""

    def __init__(self, connection: WireConnection, login: Login | None = None) -> None:
        self.node_id = connection.node_id
        self._connection = connection
        self._login = login
        self._session_s = math.inf
        """Loop time at which the client authenticates again."""
        self._renewal = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str,
        connect_timeout_ms: int,
        receive_bytes_max: int,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        scratch: Scratch | None = None,
    ) -> Connection:
        """Connects, exchanges Hello, and authenticates where there is a `login`.

        Raises `ConnectionFailed` with the reason, and `AuthenticationFailed`.
        """
        config = ConnectionConfig(
            software="millrace-python",
            software_version=software_version(),
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            receive_bytes_max=receive_bytes_max,
            kept_bytes_max=kept_bytes_max,
        )
        create_connection = asyncio.get_running_loop().create_connection
        dial = create_connection if tls is None else functools.partial(create_connection, ssl=tls)
        lifetime_ms = 0

        async def authenticate(made: WireConnection) -> None:
            nonlocal lifetime_ms
            if login is not None:
                lifetime_ms = await login.authenticate(made, timeout_ms=connect_timeout_ms)

        try:
            made = await connect(dial, address, config, scratch=scratch, then=authenticate)
        except wire.RequestFailed as error:
            raise client_error(error) from error.__cause__
        connection = cls(made, login)
        connection._begin_session(lifetime_ms)
        return connection

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self._connection.fault is None

    @property
    def fault(self) -> MillraceError | None:
        """Why the connection has ended."""
        fault = self._connection.fault
        return None if fault is None else client_error(fault)

    @property
    def pending_count(self) -> int:
        """Requests that wait to be sent or for their response."""
        return self._connection.pending_count

    def is_to(self, address: Address) -> bool:
        """Whether this is a connection to `address`, as it was dialed or as the socket has it."""
        return self._connection.is_to(address)

    async def call(self, request: Message, response: type[M], *, timeout_ms: int) -> M:
        """Sends a request, in the order of calls, and returns its response.

        Raises `ConnectionLost`, `RequestTimedOut` (the connection is closed then, unless the
        request was never sent), `ProtocolViolation`, and `BrokerError` where the broker refuses
        the whole request.
        """
        try:
            if asyncio.get_running_loop().time() >= self._session_s:
                await self._renew_session(timeout_ms)
            return await self._connection.call(request, response, timeout_ms=timeout_ms)
        except wire.RequestFailed as error:
            raise client_error(error) from error.__cause__

    async def post(self, request: Message, *, timeout_ms: int) -> None:
        """Sends a request that has no response; returns when its bytes are written.

        Raises as `call` does.
        """
        try:
            await self._connection.post(request, timeout_ms=timeout_ms)
        except wire.RequestFailed as error:
            raise client_error(error) from error.__cause__

    async def _renew_session(self, timeout_ms: int) -> None:
        """Authenticates again, once for all requests that wait for it (KIP-368)."""
        async with self._renewal:
            if asyncio.get_running_loop().time() < self._session_s or self._login is None:
                return
            lifetime_ms = await self._login.authenticate(self._connection, timeout_ms=timeout_ms)
            self._begin_session(lifetime_ms)

    def _begin_session(self, lifetime_ms: int) -> None:
        if lifetime_ms:
            now_s = asyncio.get_running_loop().time()
            self._session_s = now_s + lifetime_ms / 1000 * SESSION_USED
        else:
            self._session_s = math.inf

    def close(self) -> None:
        """Closes at once. Pending requests fail with `Closed`."""
        self._connection.close()

    def __str__(self) -> str:
        return str(self._connection)


def client_error(error: wire.RequestFailed) -> MillraceError:
    """The error of the clients for an error of a connection."""
    match error:
        case wire.RequestRefused():
            return broker_error(error.error_code, str(error))
        case wire.RequestTooLarge():
            return MessageTooLarge(
                f"{error}: lower max_request_bytes, or name fewer topics at once",
                code=ErrorCode.FRAME_TOO_LARGE,
            )
        case wire.FrameTooLong():
            return MessageTooLarge(
                f"{error}: raise fetch_max_bytes, and buffer_bytes with it",
                code=ErrorCode.FRAME_TOO_LARGE,
            )
        case wire.VersionUnsupported():
            return UnsupportedVersion(str(error), code=ErrorCode.UNSUPPORTED_VERSION)
        case _:
            return _ERRORS[type(error)](str(error))
