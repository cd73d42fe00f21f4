"""The requests of brokers to the active controller, and the sessions of the brokers.

A request is a message of the wire whether it comes from another broker or from this one: one way
for both. Owns what only the active controller knows, the sessions. What is allowed is decided by
the rules in `metadata`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.alter_partition import (
    AlteredPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from millrace_protocol.messages.broker_lifecycle import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AssignReplicasRequest,
    AssignReplicasResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from millrace_protocol.metadata_records import MetadataRecord, RegisteredListener
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.initial_user import InitialUser
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.metadata.broker_registrations import (
    BrokerStart,
    fence_broker,
    register_broker,
    register_single_broker,
)
from millrace_server.metadata.broker_sessions import BrokerSessions, Heartbeat
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.isr_changes import IsrChange, change_isrs
from millrace_server.metadata.leader_election import balance_leaders
from millrace_server.metadata.producer_ids import PRODUCER_ID_BLOCK, reserve_producer_ids
from millrace_server.metadata.replica_directories import assign_directories
from millrace_server.peers.calls import PeerCalls

log = get_logger("millrace.controller")
BALANCE_INTERVAL_MS = 60_000
"""Between two steps that give partitions to their preferred leaders. Kafka's interval is 300 s."""
SESSION_LOOK_MS = 100
"""The sessions are looked at so often."""
GONE_WAIT_MS = 100
"""A broker that is silent, and gives no answer to a connect for so long, may be alive."""


class ControllerRequests:
    """Takes requests while this broker is the active controller; `start` once, `close` once."""

    def __init__(
        self,
        active: ActiveController,
        cache: MetadataCache,
        env: Environment,
        peers: PeerCalls,
        config: BrokerConfig,
        *,
        is_alone: bool,
    ) -> None:
        """`is_alone`: the cluster has no other broker."""
        self._active = active
        self._cache = cache
        self._env = env
        self._peers = peers
        self._broker_id = config.node_id
        self._is_alone = is_alone
        self._defaults = config.topic
        self._initial_user = InitialUser(env, config.initial_user, config.initial_password)
        self._sessions = BrokerSessions(timeout_ms=config.broker_session_timeout_ms)
        # A heartbeat was due, and had some time to come.
        self._silent_ms = config.broker_heartbeat_interval_ms * 5 // 4
        self._heartbeat_interval_ms = config.broker_heartbeat_interval_ms
        self._sessions_epoch: int | None = None
        """The epoch of the quorum that the sessions are of."""
        self._balance_ms = env.clock.monotonic_ms() + BALANCE_INTERVAL_MS
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to watch the sessions, while this broker is the active controller."""
        if not self._is_alone:
            self._watching = self._env.spawn.task(self._watch(), name="broker sessions")

    async def close(self) -> None:
        """Ends the watch."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def handle(self, request: Message) -> Message:
        """The response to a request of a broker; errors of the whole request stand in it.

        Raises `TypeError` for a message that is no request to the controller.
        """
        try:
            if not (self._is_alone or self._active.is_active):
                # The sender knows an earlier leader, and is to ask the next one.
                raise ApiError(ErrorCode.NOT_CONTROLLER)
            match request:
                case BrokerRegistrationRequest():
                    return await self._register(request)
                case BrokerHeartbeatRequest():
                    return await self._heartbeat(request)
                case AssignReplicasRequest():
                    return await self._assign(request)
                case AllocateProducerIdsRequest():
                    return await self._allocate(request)
                case AlterPartitionRequest():
                    return await self._alter(request)
        except ApiError as error:
            return _refused(request, error)
        raise TypeError(f"{type(request).__name__} is no request to the controller")

    def _now_ms(self) -> int:
        return self._env.clock.monotonic_ms()

    async def _register(self, request: BrokerRegistrationRequest) -> Message:
        start = BrokerStart(
            request.broker_id,
            request.incarnation_id,
            tuple(
                RegisteredListener(each.name, each.host, each.port, each.has_tls)
                for each in request.listeners
            ),
            request.rack,
            request.directory_ids,
            request.broker_host,
            request.broker_port,
            request.previous_broker_epoch,
        )
        cluster_id = uuid.UUID(int=self._env.rng.getrandbits(128), version=4)
        user_records = await self._initial_user.decision(self._cache.image)

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            return [*registration(image), *user_records(image)]

        def registration(image: ClusterImage) -> Sequence[MetadataRecord]:
            if self._is_alone:
                return register_single_broker(image, start, cluster_id=cluster_id)
            self._begin_sessions(image)
            has_session = self._sessions.is_alive(start.broker_id, self._now_ms())
            return register_broker(
                image, self._defaults, start, cluster_id=cluster_id, has_session=has_session
            )

        image = await self._active.change(decide)
        self._sessions.begin(start.broker_id, self._now_ms())
        epoch = image.brokers[start.broker_id].epoch
        if not self._is_alone:
            log.info("broker registered", broker=start.broker_id, epoch=epoch)
        return BrokerRegistrationResponse(ErrorCode.NONE, None, epoch)

    async def _heartbeat(self, request: BrokerHeartbeatRequest) -> Message:
        self._active.check_ready()
        heartbeat = Heartbeat(
            request.broker_id,
            request.broker_epoch,
            request.metadata_offset,
            request.wants_shutdown,
        )
        image = self._cache.image
        self._begin_sessions(image)
        self._sessions.contact(image, heartbeat, self._now_ms())
        if self._sessions.heartbeat_records(image, self._defaults, heartbeat):
            # A broker that leads thousands of partitions has to hear that its heartbeats come in
            # while they move. The change goes on.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_interval_ms / 1000):
                    await self._active.change(
                        lambda image: self._sessions.heartbeat_records(
                            image, self._defaults, heartbeat
                        )
                    )
            image = self._cache.image
        answer = self._sessions.heartbeat_answer(image, heartbeat)
        return BrokerHeartbeatResponse(
            ErrorCode.NONE, None, answer.is_caught_up, answer.is_fenced, answer.should_shut_down
        )

    async def _assign(self, request: AssignReplicasRequest) -> Message:
        replicas = [(replica.topic_id, replica.partition) for replica in request.replicas]
        await self._active.change(
            lambda image: assign_directories(
                image,
                request.broker_id,
                request.directory_id,
                replicas,
                broker_epoch=request.broker_epoch,
            )
        )
        return AssignReplicasResponse(ErrorCode.NONE, None)

    async def _allocate(self, request: AllocateProducerIdsRequest) -> Message:
        image = await self._active.change(
            lambda image: reserve_producer_ids(
                image,
                request.broker_id,
                broker_epoch=request.broker_epoch,
                at_least=request.at_least,
            )
        )
        first = image.next_producer_id - PRODUCER_ID_BLOCK
        return AllocateProducerIdsResponse(ErrorCode.NONE, None, first, PRODUCER_ID_BLOCK)

    async def _alter(self, request: AlterPartitionRequest) -> Message:
        wanted = [
            IsrChange(
                each.topic_id,
                each.partition,
                each.leader_epoch,
                each.partition_epoch,
                tuple((member.broker_id, member.broker_epoch) for member in each.isr),
            )
            for each in request.partitions
        ]
        refused: Sequence[ApiError | None] = ()

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            nonlocal refused
            decisions = change_isrs(
                image,
                self._defaults,
                wanted,
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
            )
            refused = decisions.refused
            return decisions.records

        image = await self._active.change(decide)
        results = tuple(
            _altered(image, change, error) for change, error in zip(wanted, refused, strict=True)
        )
        return AlterPartitionResponse(ErrorCode.NONE, None, results)

    def _begin_sessions(self, image: ClusterImage) -> None:
        """A new active controller has heard no broker yet: all have a whole session to come."""
        epoch = self._active.epoch
        if epoch is not None and epoch != self._sessions_epoch:
            self._sessions_epoch = epoch
            self._sessions.take_over(image, self._now_ms())

    async def _watch(self) -> None:
        while True:
            if self._active.is_ready:
                self._begin_sessions(self._cache.image)
                await self._end_sessions()
                await self._balance()
            await asyncio.sleep(SESSION_LOOK_MS / 1000)

    async def _end_sessions(self) -> None:
        """Fences the brokers that were not heard in their session, and those that have ended.

        Where the address of a broker whose heartbeat is late refuses connections, its process is
        gone. A broker that is fenced by mistake loses its leaders for a
        moment, as with a heartbeat that comes late: its next one brings it back into service.
        """
        now_ms, own_id = self._now_ms(), self._broker_id
        overdue = [broker_id for broker_id in self._sessions.overdue(now_ms) if broker_id != own_id]
        unheard = self._sessions.silent(since_ms=now_ms - self._silent_ms)
        silent = [each for each in unheard if each != own_id and each not in overdue]
        for broker_id in overdue:
            await self._fence(broker_id, "no heartbeat in its session")
        gone = await asyncio.gather(*map(self._is_gone, silent))
        for broker_id, is_gone in zip(silent, gone, strict=True):
            if is_gone:
                await self._fence(broker_id, "its process has ended")

    async def _is_gone(self, broker_id: int) -> bool:
        try:
            async with asyncio.timeout(GONE_WAIT_MS / 1000):
                return await self._peers.is_process_gone(broker_id)
        except TimeoutError:
            return False

    async def _balance(self) -> None:
        """Gives some partitions back to their preferred leaders, now and then."""
        now_ms = self._now_ms()
        if now_ms < self._balance_ms:
            return
        self._balance_ms = now_ms + BALANCE_INTERVAL_MS
        if not balance_leaders(self._cache.image, self._defaults):
            return
        try:
            await self._active.change(lambda image: balance_leaders(image, self._defaults))
        except ApiError as error:
            log.warning("leaders not balanced", reason=error.message)

    async def _fence(self, broker_id: int, reason: str) -> None:
        broker = self._cache.image.brokers.get(broker_id)
        if broker is not None and not broker.is_fenced:
            log.warning("broker fenced", broker=broker_id, reason=reason)
        try:
            await self._active.change(lambda image: fence_broker(image, self._defaults, broker_id))
        except ApiError as error:
            log.warning("broker not fenced", broker=broker_id, reason=error.message)
        else:
            self._sessions.end(broker_id)


def _altered(
    image: ClusterImage, change: IsrChange, error: ApiError | None
) -> AlteredPartitionResult:
    key = change.topic_id, change.partition
    if error is not None:
        return AlteredPartitionResult(*key, error.code, error.message, -1, -1, -1, ())
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return AlteredPartitionResult(*key, code, "The topic was deleted", -1, -1, -1, ())
    known = topic.partitions[change.partition]
    return AlteredPartitionResult(
        *key,
        ErrorCode.NONE,
        None,
        known.leader,
        known.leader_epoch,
        known.partition_epoch,
        known.isr,
    )


def _refused(request: Message, error: ApiError) -> Message:
    refused = error.code, error.message
    match request:
        case BrokerRegistrationRequest():
            return BrokerRegistrationResponse(*refused, -1)
        case BrokerHeartbeatRequest():
            return BrokerHeartbeatResponse(*refused, False, True, False)
        case AssignReplicasRequest():
            return AssignReplicasResponse(*refused)
        case AllocateProducerIdsRequest():
            return AllocateProducerIdsResponse(*refused, -1, 0)
        case AlterPartitionRequest():
            return AlterPartitionResponse(*refused, ())
    raise error
