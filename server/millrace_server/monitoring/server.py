"""The listener of `metrics_listen`: which path is answered with what.

    GET /metrics        the registry, as Prometheus's text or as OpenMetrics
    GET /health/live    200 while the event loop turns
    GET /health/ready   200 while clients may be sent here, else 503 with the reason; so is /health

It listens before the broker starts, which may wait for others, and until it has stopped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from millrace_server.environment.seams import Listener
from millrace_server.listeners import Address
from millrace_server.logs import get_logger
from millrace_server.monitoring.exposition import encode
from millrace_server.monitoring.http_connection import (
    REQUEST_S,
    HttpConnection,
    Request,
    Response,
    sentence,
)
from millrace_server.net.server import listen_error
from millrace_server.node import Node
from millrace_server.services.request_context import THIS_BROKER

log = get_logger("millrace.monitoring")
CONNECTIONS_MAX = 32
"""That have sent something: two Prometheus servers and some probes have one each, for milliseconds.
Those that have not are bounded as on the port of clients."""


class MonitoringServer:
    """Lives from `start` to the end of `close`, around the life of its node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._env = node.broker.env
        self._connections: set[HttpConnection] = set()
        self._listener: Listener | None = None
        self._scrape = asyncio.Lock()
        self._paths: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/metrics": self._metrics,
            "/health": self._ready,
            "/health/live": self._live,
            "/health/ready": self._ready,
        }

    async def start(self, address: Address) -> Address:
        """Listens; returns the address bound. Raises `ListenError`."""
        host, port = address
        try:
            self._listener = await self._env.net.listen(
                lambda: HttpConnection(self, self._env.spawn, self._answer),
                host,
                port,
                silent_ms_max=REQUEST_S * 1000,
                # No request begins as a frame does.
                first_frame_bytes_max=0,
            )
        except OSError as error:
            raise listen_error(host, port, error) from error
        host, port = self._listener.sockets[0].getsockname()[:2]
        log.info("listening for metrics", host=host, port=port)
        return host, port

    async def close(self) -> None:
        """Ends every connection; does nothing before `start`."""
        if self._listener is None:
            return
        self._listener.close()
        await self._listener.wait_closed()
        answering = [each.answering for each in self._connections if each.answering is not None]
        for connection in self._connections:
            connection.end()
        for task in answering:
            task.cancel()
        if answering:
            await asyncio.wait(answering)

    def opened(self, connection: HttpConnection) -> bool:
        """See `http_connection.Owner`."""
        if len(self._connections) >= CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        return True

    def lost(self, connection: HttpConnection) -> None:
        """See `http_connection.Owner`."""
        self._connections.discard(connection)

    async def _answer(self, request: Request) -> Response:
        try:
            path = urlsplit(request.target).path
        except ValueError:
            path = ""
        answer = self._paths.get(path)
        if answer is None:
            known = ", ".join(self._paths)
            return sentence(HTTPStatus.NOT_FOUND, f"Nothing is at this path; ask for {known}")
        return await answer(request)

    async def _metrics(self, request: Request) -> Response:
        # Held across the waits: however many ask at once, one worker thread at most is taken from
        # the broker's own work.
        async with self._scrape:
            found = await self._node.broker.services.statistics.read(THIS_BROKER, "")
            body, media_type = await self._env.spawn.blocking(encode, found, request.accept)
        return Response(HTTPStatus.OK, media_type, body)

    async def _live(self, _: Request) -> Response:
        return _json(HTTPStatus.OK, live=True)

    async def _ready(self, _: Request) -> Response:
        reason = self._node.not_ready_reason
        status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
        return _json(status, ready=reason is None, reason=reason)


def _json(status: HTTPStatus, **fields: Any) -> Response:
    return Response(status, "application/json", f"{json.dumps(fields)}\n".encode())
