"""The life of this broker in the cluster: registration, heartbeats, controlled shutdown (KIP-631).

    register ──► heartbeats ──► unfenced ──► shutdown asked for ──► leaders moved ──► stopped

A broker whose registration is not in force any more registers anew. In a cluster of one there are
no heartbeats: a broker that runs is alive.
"""

from __future__ import annotations

import asyncio
import errno
import uuid
from collections.abc import Awaitable, Callable, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_lifecycle import (
    AssignedReplica,
    AssignReplicasRequest,
    AssignReplicasResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ClientListener,
)
from millrace_server.api_error import ApiError
from millrace_server.controller.applier import Replica
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.environment.seams import Environment
from millrace_server.log.checkpoint_file import read_file, replace_file
from millrace_server.logs import get_logger
from millrace_server.peers.calls import Channel

log = get_logger("millrace.broker")
CLEAN_SHUTDOWN_NAME = "clean-shutdown"
"""Holds the broker epoch, as text, from an orderly stop to the next start."""
UNCLEAN = -1
REGISTER_AGAIN_MS = 100
REPORT_TIMEOUT_MS = 30_000
"""For the report of new replicas to the active controller."""
_ASKED_AGAIN = (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)
"""A registration is refused for a time only, unless another process has the broker's id."""
_PASSING = {
    ErrorCode.DISK_FULL: errno.ENOSPC,
    ErrorCode.NOT_CONTROLLER: errno.ETIMEDOUT,
    ErrorCode.REQUEST_TIMED_OUT: errno.ETIMEDOUT,
    ErrorCode.STALE_BROKER_EPOCH: errno.ESTALE,
}
"""Why a report of new replicas fails although the next one may succeed."""
Address = tuple[str, int]


class BrokerLifecycle:
    """`register` first, `begin` the heartbeats once, `shut_down` once."""

    def __init__(
        self,
        env: Environment,
        metadata: ClusterMetadata,
        controller: ControllerCalls,
        *,
        broker_id: int,
        rack: str | None,
        broker_address: Callable[[], Address],
        is_alone: bool,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        register_timeout_ms: int,
        on_registered: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_registered()` is awaited when the broker has another epoch."""
        self._env = env
        self._metadata = metadata
        self._controller = controller
        self._broker_id = broker_id
        self._rack = rack
        self._broker_address = broker_address
        self._is_alone = is_alone
        self._interval_ms = heartbeat_interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._register_timeout_ms = register_timeout_ms
        self._on_registered = on_registered
        self._incarnation_id = self._new_id()
        self._listeners: tuple[ClientListener, ...] = ()
        self._previous_epoch = UNCLEAN
        self._heartbeats: asyncio.Task[None] | None = None
        self._answered_ms = 0
        self._wants_shutdown = False
        self._may_stop = asyncio.Event()
        self.epoch = UNCLEAN
        """The broker epoch; -1 before the first registration."""

    @property
    def out_of_service_reason(self) -> str | None:
        """Why the cluster does not send clients here, in one sentence; None if it does."""
        if self._wants_shutdown:
            return "The broker is stopping"
        known = self._metadata.image.brokers.get(self._broker_id)
        if self.epoch == UNCLEAN or known is None or known.epoch != self.epoch:
            return "The broker is not registered with the cluster yet"
        if known.is_fenced:
            return "The broker is fenced: the active controller waits for its heartbeat"
        if self._heartbeats is not None:
            silent_ms = self._env.clock.monotonic_ms() - self._answered_ms
            if silent_ms >= self._session_timeout_ms:
                return f"No active controller has answered this broker for {silent_ms} ms"
        return None

    async def load(self) -> None:
        """Reads, and forgets, how the last process has ended. Raises `OSError`."""
        self._previous_epoch = await self._env.spawn.blocking(self._take_clean_epoch)

    async def register(self, listeners: tuple[ClientListener, ...]) -> None:
        """Registers this process; `listeners` are where clients find it. Raises `ApiError`.

        Returns when the registration is in this broker's image.
        """
        if listeners != self._listeners:
            # Another registration, under an identity of its own.
            self._incarnation_id = self._new_id()
        self._listeners = listeners
        metadata = self._metadata
        request = BrokerRegistrationRequest(
            self._broker_id,
            self._incarnation_id,
            (metadata.identity.directory_id,),
            listeners,
            *self._broker_address(),
            self._rack,
            self._previous_epoch,
        )
        response = await self._registered(request)
        self.epoch = response.broker_epoch
        await metadata.publisher.published(response.broker_epoch + 1)
        await metadata.note_cluster()
        if not self._is_alone:
            log.info("registered", epoch=self.epoch, controller=metadata.leader_id)

    async def report_replicas(self, created: Sequence[Replica]) -> None:
        """Commits that this broker has created replicas. Raises `ApiError`."""
        request = AssignReplicasRequest(
            self._broker_id,
            self.epoch,
            self._metadata.identity.directory_id,
            tuple(AssignedReplica(*replica) for replica in created),
        )
        try:
            await self._controller.call(
                request, AssignReplicasResponse, timeout_ms=REPORT_TIMEOUT_MS
            )
        except ApiError as error:
            if error.code in _PASSING:
                # The partitions are tried again.
                raise error from OSError(_PASSING[error.code], error.message)
            raise

    async def _registered(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        """The controller's response. After a process that was killed it comes with the end of that
        one's session: until then a process that is alive cannot be told from it. Each new active
        controller begins the sessions anew, so no number of sessions is enough. A change that was
        not committed in time is asked for again: a registration that comes twice is one."""
        clock, until_ms = self._env.clock, None
        while True:
            try:
                return await self._controller.call(
                    request, BrokerRegistrationResponse, timeout_ms=self._register_timeout_ms
                )
            except ApiError as error:
                now_ms = clock.monotonic_ms()
                if error.code not in _ASKED_AGAIN:
                    raise
                if until_ms is None:
                    until_ms = now_ms + self._register_timeout_ms
                    log.warning("registration has to wait", reason=error.message)
                if now_ms >= until_ms:
                    raise
                await asyncio.sleep(REGISTER_AGAIN_MS / 1000)

    def begin(self) -> None:
        """Begins the heartbeats: the broker has opened what it needs to."""
        if not self._is_alone:
            self._answered_ms = self._env.clock.monotonic_ms()
            self._heartbeats = self._env.spawn.task(self._beat(), name="heartbeats")

    async def shut_down(self, timeout_ms: int) -> None:
        """Returns when no partition is led here any more, or after `timeout_ms`.

        Without a controller it waits for a session only: then other brokers lead in place of this
        one, or too few are left for that.
        """
        self._wants_shutdown = True
        if self._heartbeats is None:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._may_stop.wait()
        except TimeoutError:
            log.warning("stopping before the leaders have moved", waited_ms=timeout_ms)
        self._heartbeats.cancel()
        await asyncio.wait([self._heartbeats])

    async def note_clean(self) -> None:
        """Notes that everything was closed in order: the replicas here have all they acked."""
        if not self._is_alone and self.epoch != UNCLEAN:
            data = f"{self.epoch}\n".encode()
            await self._env.spawn.blocking(replace_file, self._env.disk, CLEAN_SHUTDOWN_NAME, data)

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._env.rng.getrandbits(128), version=4)

    def _take_clean_epoch(self) -> int:
        disk = self._env.disk
        data = read_file(disk, CLEAN_SHUTDOWN_NAME)
        if data is None:
            return UNCLEAN
        disk.remove(CLEAN_SHUTDOWN_NAME)
        disk.sync_directory("")
        text = data.decode(errors="replace").strip()
        return int(text) if text.isdigit() else UNCLEAN

    async def _beat(self) -> None:
        while True:
            began_ms = self._env.clock.monotonic_ms()
            try:
                await self._beat_once()
            except ApiError as error:
                await self._on_refused(error)
                self._give_up_without_controller()
            else:
                self._answered_ms = self._env.clock.monotonic_ms()
            if self._may_stop.is_set():
                return
            waited_ms = self._env.clock.monotonic_ms() - began_ms
            interval_ms = self._interval_ms // 10 if self._wants_shutdown else self._interval_ms
            await asyncio.sleep(max(0, interval_ms - waited_ms) / 1000)

    def _give_up_without_controller(self) -> None:
        silent_ms = self._env.clock.monotonic_ms() - self._answered_ms
        if self._wants_shutdown and silent_ms >= self._session_timeout_ms:
            log.warning("stopping without a controller", silent_ms=silent_ms)
            self._may_stop.set()

    async def _beat_once(self) -> None:
        offset = self._metadata.publisher.applied_offset
        request = BrokerHeartbeatRequest(self._broker_id, self.epoch, offset, self._wants_shutdown)
        answer = await self._controller.call(
            request,
            BrokerHeartbeatResponse,
            timeout_ms=4 * self._interval_ms,
            channel=Channel.HEARTBEAT,
        )
        if answer.should_shut_down:
            self._may_stop.set()

    async def _on_refused(self, error: ApiError) -> None:
        if error.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            if self._wants_shutdown:
                self._may_stop.set()
                return
            log.warning("registering anew", reason=error.message)
            self._incarnation_id = self._new_id()
            try:
                await self.register(self._listeners)
                await self._on_registered()
            except ApiError as refused:
                log.error("not registered", reason=refused.message)
        elif error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.DISK_FULL):
            log.warning("heartbeat refused", reason=error.message)
