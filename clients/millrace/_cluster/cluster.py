"""The cluster as a client sees it: brokers, leaders, and a connection to each.

Owns bootstrap, the metadata cache and its refresh, and the connections. Decides no retries of
produce or fetch: their owners do, with `backoff_ms`. Refreshes and connects of several callers at
once are one, and an address that cannot be reached is dialed at a bounded rate.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from millrace._background_tasks import mark_seen
from millrace._backoff import backoff_ms
from millrace._cluster.connect_backoff import ConnectBackoff
from millrace._cluster.connection import Connection
from millrace._cluster.first_answer import first_answer
from millrace._cluster.login import Login
from millrace._cluster.metadata_cache import MetadataCache
from millrace._cluster.not_controller import is_from_no_controller
from millrace._cluster.port_probe import first_contact
from millrace.config import ClientConfig
from millrace.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionFailed,
    ForeignPort,
    MillraceError,
    again,
)
from millrace.events import EventFeed, EventKind
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import FRAME_BYTES_MAX
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.schema import Message
from millrace_wire.connection import SCRATCH_BYTES, Address
from millrace_wire.frame_buffers import KEPT_BYTES_MAX
from millrace_wire.frame_reader import Scratch

M = TypeVar("M", bound=Message)

Ask = Callable[[MetadataRequest], Coroutine[Any, Any, MetadataResponse]]

LANE_CALLS = "calls"
"""Requests that are answered as soon as they can be."""
LANE_FETCH = "fetch"
"""Fetches that do not wait, but whose answers may be large."""
LANE_LONG_POLL = "long poll"
"""Fetches that wait on the broker; answers come in order, so nothing else may be behind one."""
_RECEIVE_SLACK_BYTES = 1024 * 1024
UNKNOWN_TOPIC_TRIES = 4
"""Metadata answers that must deny a topic before the client believes it: a topic that was just
created is known to some brokers before others."""


class Cluster:
    """Connections and metadata of one client, between `start` and `close`.

    Takes no loop until `start`.
    """

    def __init__(
        self,
        servers: tuple[Address, ...],
        config: ClientConfig,
        *,
        feed: EventFeed,
        receive_bytes_max: int = FRAME_BYTES_MAX,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        self.rng = rng or random.Random()
        self.metadata = MetadataCache()
        self._connect_backoff = ConnectBackoff(config, self.rng)
        self._servers = servers
        self._tls = tls
        self._login = login
        self._feed = feed
        self._receive_bytes_max = max(receive_bytes_max, FRAME_BYTES_MAX) + _RECEIVE_SLACK_BYTES
        self._kept_bytes_max = max(kept_bytes_max, KEPT_BYTES_MAX) + _RECEIVE_SLACK_BYTES
        self._scratch = Scratch(SCRATCH_BYTES)
        self._connections: dict[tuple[int, str], Connection] = {}
        self._connecting: dict[tuple[int, str], asyncio.Task[Connection]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._wanted: set[str] = set()
        self._asked_last = -1
        """The broker that is asked for metadata after all others."""
        self._closed = False

    async def start(self) -> None:
        """Finds a broker and learns of the others. Raises `ConnectionFailed`, naming all tried.

        Raises `ForeignPort`, which is one, where none of them is a broker's.
        """
        await self.refresh(())

    async def close(self) -> None:
        """Closes every connection; what waits on one fails with `Closed`."""
        self._closed = True
        tasks: list[asyncio.Task[Any]] = [*self._connecting.values()]
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        for task in tasks:
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if tasks:
            await asyncio.wait(tasks)
        self._refreshing = None

    # Metadata

    async def refresh(self, topics: Iterable[str]) -> None:
        """Asks any broker for `topics` and for the brokers. Raises when none answers."""
        self._wanted.update(topics)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_wanted(), name="millrace-metadata")
            self._refreshing.add_done_callback(mark_seen)
        await asyncio.shield(self._refreshing)

    async def await_topics(self, topics: Collection[str]) -> None:
        """Returns when all `topics` are in the cache.

        Raises the broker's error for a topic, after `UNKNOWN_TOPIC_TRIES` tries where it may just
        have been created, and `ConnectionFailed` when no broker answers.
        """
        if missing := await self.look_for_topics(topics):
            raise again(self.metadata.topic_errors[missing[0]])

    async def look_for_topics(self, topics: Collection[str]) -> list[str]:
        """Returns when all `topics` are in the cache, or else the missing ones after
        `UNKNOWN_TOPIC_TRIES` tries, or fewer where no other broker can know them.

        Raises `ConnectionFailed` when no broker answers.
        """
        missing = list(topics)
        for attempt in range(UNKNOWN_TOPIC_TRIES):
            if attempt:
                await self.pause(attempt - 1)
            await self.refresh(missing)
            missing = [topic for topic in missing if topic not in self.metadata.leaders]
            errors = [self.metadata.topic_errors.get(topic) for topic in missing]
            if not any(error is None or error.retriable for error in errors):
                break
        return missing

    async def list_topics(self) -> list[str]:
        """The names of all topics but the broker's own; what they are like is in the cache then.

        Raises `NotAuthorized` for a client that may see none.
        """
        response = await self._ask_for_metadata(None)
        self.metadata.learn(response)
        return [topic.name for topic in response.topics if not topic.is_internal]

    def ask_last(self, node_id: int) -> None:
        """Has the other brokers asked first for the next metadata.

        For a broker that has just given metadata, that a request failed at, or that refused a
        request as another leader does not: it may hang, or be cut off from the others.
        """
        self._asked_last = node_id

    async def _refresh_wanted(self) -> None:
        while True:
            topics = tuple(sorted(self._wanted))
            self._wanted.clear()
            try:
                response = await self._ask_for_metadata(topics)
            except BaseException:
                self._wanted.update(topics)
                raise
            self.metadata.learn(response)
            if not self._wanted:
                return

    async def _ask_for_metadata(self, topics: tuple[str, ...] | None) -> MetadataResponse:
        await self._until_dialable()
        request = MetadataRequest(topics)
        failures: list[MillraceError] = []
        asks = [partial(candidate, request) for candidate in self._candidates()]
        response = await first_answer(asks, failures)
        if response is not None:
            return response
        is_foreign = all(isinstance(each, ForeignPort) for each in failures)
        kind = ForeignPort if is_foreign else ConnectionFailed
        raise kind("; ".join(dict.fromkeys(map(str, failures)))) from failures[-1]

    async def _until_dialable(self) -> None:
        """Returns when a broker can be asked: one that is connected, or may be dialed again."""
        brokers = self.metadata.brokers
        if not any(self._open(node, LANE_CALLS) for node in brokers):
            addresses = {*brokers.values(), *self._servers}
            now_ms = asyncio.get_running_loop().time() * 1000
            await asyncio.sleep(self._connect_backoff.wait_ms(addresses, now_ms) / 1000)

    def _candidates(self) -> list[Ask]:
        """Asks brokers with open connections, then the others known, then the bootstrap list.

        The one of `ask_last` is the last. Of others with open connections those without pending
        requests are first: a broker that hangs has some.
        """
        nodes = list(self.metadata.brokers)
        self.rng.shuffle(nodes)
        nodes.sort(key=lambda node: (node == self._asked_last, *self._readiness(node)))
        known = set(self.metadata.brokers.values())
        return [
            *(partial(self._ask_broker, node) for node in nodes),
            *(partial(self._ask_server, server) for server in self._servers if server not in known),
        ]

    def _readiness(self, node_id: int) -> tuple[bool, int]:
        connection = self._open(node_id, LANE_CALLS)
        return connection is None, 0 if connection is None else connection.pending_count

    async def _ask_broker(self, node_id: int, request: MetadataRequest) -> MetadataResponse:
        return await self._metadata(await self.connection(node_id), request)

    async def _ask_server(self, server: Address, request: MetadataRequest) -> MetadataResponse:
        """Asks an address of the bootstrap list, and connects to the broker that answers there."""
        dialing = self._dial(server)
        connection = await (dialing if self.metadata.brokers else first_contact(dialing, server))
        try:
            response = await self._metadata(connection, request)
            advertised = await self._at_advertised(connection, response)
        except BaseException:
            connection.close()
            raise
        self._keep(advertised, LANE_CALLS)
        return response

    async def _metadata(self, connection: Connection, request: MetadataRequest) -> MetadataResponse:
        timeout_ms = self.config.request_timeout_ms
        response = await connection.call(request, MetadataResponse, timeout_ms=timeout_ms)
        self.ask_last(connection.node_id)
        return response

    async def _at_advertised(
        self, connection: Connection, response: MetadataResponse
    ) -> Connection:
        """The connection to the address that the broker advertises: this one, or another.

        Other lanes and other clients know that address only. One that cannot be reached would go
        unseen until then. Raises `ConnectionFailed`.
        """
        brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        address = brokers.get(connection.node_id)
        if address is None or connection.is_to(address):
            return connection
        connection.close()
        try:
            return await self._dial(address)
        except ConnectionFailed as error:
            raise ConnectionFailed(
                f"the broker at {connection} advertises another address to its clients, and there "
                f"is {error}. Set its `advertise` (millrace serve --advertise HOST:PORT) to an "
                "address that its clients can reach"
            ) from error

    # Connections

    async def connection(self, node_id: int, *, lane: str = LANE_CALLS) -> Connection:
        """A live connection to a broker; made if need be. Raises `ConnectionFailed`."""
        found = self._open(node_id, lane)
        if found is not None:
            return found
        key = (node_id, lane)
        task = self._connecting.get(key)
        if task is None:
            task = asyncio.create_task(
                self._connect(node_id, lane), name=f"millrace-connect-{node_id}"
            )
            self._connecting[key] = task
            task.add_done_callback(mark_seen)
            task.add_done_callback(lambda _: self._connecting.pop(key, None))
        try:
            return await asyncio.shield(task)
        finally:
            # The error of a task refers to this frame, once it is raised here.
            del task

    async def any_connection(self, *, avoid: int = -1) -> Connection:
        """A live connection to some broker; to broker `avoid` only where no other is there."""
        for node_id in self.metadata.brokers:
            found = self._open(node_id, LANE_CALLS)
            if found is not None and node_id != avoid:
                return found
        await self.refresh(())
        failures: list[MillraceError] = []
        for node_id in sorted(self.metadata.brokers, key=lambda node_id: node_id == avoid):
            try:
                return await self.connection(node_id)
            except AuthenticationFailed:
                raise
            except MillraceError as error:
                failures.append(again(error))
        raise ConnectionFailed("; ".join(map(str, failures)) or "the cluster has no brokers")

    async def controller(self) -> Connection:
        """A live connection to the active controller; after a failure it is looked for again."""
        if self.metadata.controller_id < 0:
            await self.refresh(())
        if self.metadata.controller_id < 0:
            raise ConnectionFailed("the cluster has no controller now; try again")
        try:
            return await self.connection(self.metadata.controller_id)
        except ConnectionFailed:
            self.metadata.controller_id = -1
            raise

    def _open(self, node_id: int, lane: str) -> Connection | None:
        connection = self._connections.get((node_id, lane))
        return connection if connection is not None and connection.is_open else None

    async def _connect(self, node_id: int, lane: str) -> Connection:
        address = self.metadata.brokers.get(node_id)
        if address is None:
            raise ConnectionFailed(f"broker {node_id} is not in the metadata of the cluster")
        connection = await self._dial(address)
        if connection.node_id != node_id:
            connection.close()
            raise ConnectionFailed(
                f"{connection} is broker {connection.node_id} now and not broker {node_id}"
            )
        self._keep(connection, lane)
        self._feed.emit(EventKind.CONNECTED, f"connected to broker {node_id} at {connection}")
        return connection

    async def _dial(self, address: Address) -> Connection:
        if self._closed:
            raise Closed("the client is closed")
        loop = asyncio.get_running_loop()
        self._connect_backoff.check(address, loop.time() * 1000)
        try:
            connection = await Connection.open(
                address,
                client_id=self.config.client_id,
                connect_timeout_ms=self.config.connect_timeout_ms,
                receive_bytes_max=self._receive_bytes_max,
                tls=self._tls,
                login=self._login,
                kept_bytes_max=self._kept_bytes_max,
                scratch=self._scratch,
            )
        except ConnectionFailed as error:
            self._connect_backoff.failed(address, error, loop.time() * 1000)
            raise
        self._connect_backoff.connected(address)
        return connection

    def _keep(self, connection: Connection, lane: str) -> None:
        if self._closed:
            connection.close()
            raise Closed("the client is closed")
        before = self._connections.get((connection.node_id, lane))
        if before is not None:
            if before.fault is not None:
                self._feed.emit(EventKind.CONNECTION_LOST, str(before.fault), before.fault)
            before.close()
        self._connections[(connection.node_id, lane)] = connection

    # Retrying

    def backoff_ms(self, attempt: int) -> int:
        """How long to wait before retry number `attempt`, from 0."""
        config = self.config
        return backoff_ms(
            attempt,
            first_ms=config.retry_backoff_ms,
            max_ms=config.retry_backoff_max_ms,
            rng=self.rng,
        )

    async def pause(self, attempt: int) -> None:
        """Waits before retry number `attempt`, from 0."""
        await asyncio.sleep(self.backoff_ms(attempt) / 1000)

    async def call(
        self,
        request: Message,
        answer: type[M],
        *,
        to: Callable[[], Awaitable[Connection]] | None = None,
        timeout_ms: int | None = None,
    ) -> M:
        """Sends a request that may be repeated, until it is answered or its time is over.

        `to` finds the connection anew for each try; without it any broker will do, and each try
        is at another one. So is the next try after a response of NOT_CONTROLLER alone. Raises the
        last retriable error when the time is over, and others at once.
        """
        timeout_ms = timeout_ms or self.config.request_timeout_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        attempt = 0
        asked = -1
        while True:
            delay_ms = self.backoff_ms(attempt)
            try:
                async with asyncio.timeout_at(deadline):
                    connection = await (self.any_connection(avoid=asked) if to is None else to())
                asked = connection.node_id
                left_ms = max(1, int((deadline - loop.time()) * 1000))
                response = await connection.call(request, answer, timeout_ms=left_ms)
            except TimeoutError:
                raise ConnectionFailed(
                    f"no connection to a broker within {timeout_ms} ms"
                ) from None
            except MillraceError as error:
                if not error.retriable or loop.time() + delay_ms / 1000 >= deadline:
                    raise
                is_controller = error.code is not ErrorCode.NOT_CONTROLLER
            else:
                is_controller = not is_from_no_controller(response)
                if is_controller or loop.time() + delay_ms / 1000 >= deadline:
                    return response
            if not is_controller:
                self.ask_last(asked)
                self.metadata.controller_id = -1
            await asyncio.sleep(delay_ms / 1000)
            attempt += 1
