"""The replicas of this broker: which partitions it leads for followers, and which it follows.

Owns the way from the image to a role, and everything that has to know of a change: the fetches of
followers, the fetchers of what is followed, the proposals of ISRs. A partition with one replica is
not here: what is stored of it is committed.

    take_role(topic, number)         the image says leader or follower, in this epoch
    on_changed(topic, number)        the ISR or the replicas have changed in the same epoch
    on_brokers_changed()             a broker was registered, fenced or unfenced
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakValueDictionary

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import NO_LEADER
from millrace_server.api_error import ApiError
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.loop.alarm import Alarm
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import PartitionRegistration, Topic
from millrace_server.metadata.replication_settings import replication_settings
from millrace_server.partitions.opening import take_role
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.role import Role
from millrace_server.peers.calls import PeerCalls
from millrace_server.replicas.isr_proposals import IsrProposals
from millrace_server.replicas.led_partition import LedPartition
from millrace_server.replicas.log_view import PartitionLogView
from millrace_server.replicas.replica_fetcher import ReplicaFetcher
from millrace_server.replicas.saved_high_watermarks import SavedHighWatermarks
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.isr import PartitionState
from millrace_server.replication.leader import BrokerState, PartitionLeader
from millrace_server.replication.messages import BrokerKey, PartitionKey

log = get_logger("millrace.replication")
ROLE_RETRY_MS = 1_000
"""Between two attempts to lead a partition on a full disk."""
Moved = Callable[[PartitionKey], None]


class RegisteredBrokers:
    """Implements `replication.leader.BrokerStates`."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    def get(self, broker_id: int, /) -> BrokerState | None:
        """See `BrokerStates`."""
        broker = self._cache.image.brokers.get(broker_id)
        return None if broker is None else BrokerState(broker.epoch, broker.is_active)


class PartitionHooks:
    """Implements `partitions.partition.ReplicaHooks` for one partition, whatever its role."""

    def __init__(self, manager: ReplicaManager, key: PartitionKey) -> None:
        self._manager = manager
        self._key = key

    def check_append(self) -> None:
        """See `ReplicaHooks`."""
        led = self._manager.led.get(self._key)
        if led is not None:
            led.check_append()

    def check_end_known(self) -> None:
        """See `ReplicaHooks`."""
        led = self._manager.led.get(self._key)
        if led is None or not led.core.is_high_watermark_known:
            raise ApiError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                "The broker has just become the leader of the partition and does not know yet how "
                "far its records are committed; try again in a moment",
            )

    def on_appended(self) -> None:
        """See `ReplicaHooks`."""
        led = self._manager.led.get(self._key)
        if led is not None:
            led.on_appended()

    def on_start_moved(self) -> None:
        """See `ReplicaHooks`."""
        if self._key in self._manager.led:
            self._manager.on_offsets_moved(self._key)

    def on_start_durable(self) -> None:
        """See `ReplicaHooks`."""
        self._manager.on_start_durable(self._key)

    def deleted(self, offset: int) -> asyncio.Future[None]:
        """See `ReplicaHooks`."""
        led = self._manager.led.get(self._key)
        if led is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return led.deleted(offset)

    def on_stored(self) -> None:
        """See `ReplicaHooks`."""
        self._manager.on_stored(self._key)


class ReplicaManager:
    """Every replicated partition of this broker, until `close`."""

    def __init__(
        self,
        env: Environment,
        partitions: PartitionTable,
        cache: MetadataCache,
        controller: ControllerCalls,
        peers: PeerCalls,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        defaults: Mapping[str, str],
        config: ReplicationConfig,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._cache = cache
        self._peers = peers
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._defaults = defaults
        self.config = config
        self._on_failure = on_failure
        self.led: dict[PartitionKey, LedPartition] = {}
        self._followed: dict[PartitionKey, ReplicaFetcher] = {}
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._role_changes: WeakValueDictionary[PartitionKey, asyncio.Lock] = WeakValueDictionary()
        self._brokers = RegisteredBrokers(cache)
        self._saved = SavedHighWatermarks(env, self._high_watermarks)
        self._is_closed = False
        self._retries: set[asyncio.Task[None]] = set()
        self.proposals = IsrProposals(
            env,
            controller,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            on_ended=self._set_alarm,
            on_failure=on_failure,
        )
        self._alarm: Alarm[PartitionKey] = Alarm(
            env.clock, asyncio.get_running_loop(), self._on_deadline
        )
        self.on_appended: Moved = _nothing
        """The log of a led partition has grown."""
        self.on_offsets_moved: Moved = _nothing
        self.on_leader_changed: Moved = _nothing

    def hooks(self, topic: Topic, number: int) -> PartitionHooks | None:
        """What a partition is made with; None if it has one replica."""
        if len(topic.partitions[number].replicas) == 1:
            return None
        return PartitionHooks(self, PartitionKey(topic.topic_id, number))

    async def load(self) -> None:
        """Reads the high watermarks of the last process, and saves them from now on."""
        await self._saved.load()

    def restore(self, topic: Topic, number: int, partition: Partition) -> None:
        """Gives a partition that was opened the high watermark that it had."""
        saved = self._saved.get(PartitionKey(topic.topic_id, number))
        if partition.replica is not None and saved is not None:
            partition.advance_high_watermark(min(saved, partition.stored_offset))

    def leader(self, key: PartitionKey) -> PartitionLeader | ErrorCode:
        """The core of a partition that is led here, or why there is none."""
        led = self.led.get(key)
        if led is not None:
            return led.core
        if key.topic_id in self._cache.image.names:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def take_role(self, topic: Topic, number: int, partition: Partition) -> None:
        """Makes a partition lead or follow as the metadata says. Raises `ApiError`.

        A partition that was opened takes its role while changes of the metadata are applied: of two
        calls the later one waits, and each takes the role that the image says then.
        """
        key = PartitionKey(topic.topic_id, number)
        async with self._role_change(key):
            current = self._cache.image.topic_by_id(topic.topic_id)
            if current is not None:
                await self._take_role(key, current, number, partition)

    async def _take_role(
        self, key: PartitionKey, topic: Topic, number: int, partition: Partition
    ) -> None:
        known = topic.partitions[number]
        if partition.replica is None and len(known.replicas) > 1:
            partition.replica = PartitionHooks(self, key)
        led = self.led.get(key)
        if led is not None and led.leads(partition, known.leader_epoch):
            self._tell(led, topic)  # It knows how far its followers are.
            return
        await self._end_role(key)
        try:
            await take_role(partition, known, self._broker_id)
        except OSError as error:
            log.error(
                "partition not led: the broker tries again",
                topic=topic.name,
                partition=number,
                reason=str(error),
            )
            self._retry_later(key)
            return
        latest = self._cache.image.topic_by_id(topic.topic_id)
        if latest is None or latest.partitions[number].leader_epoch != known.leader_epoch:
            return  # It is deleted, or another role comes next.
        if partition.log.read_only_cause is None:
            # The ISR may have changed meanwhile, and there was no leader to be told.
            self._begin_role(key, latest, number, partition)
            self._partitions.tell_change()

    def _retry_later(self, key: PartitionKey) -> None:
        retry = self._env.spawn.task(self._retry(key), name="take role again")
        self._retries.add(retry)
        retry.add_done_callback(self._retries.discard)

    async def _retry(self, key: PartitionKey) -> None:
        """Takes the role that the image says, after a while; what it says now."""
        await asyncio.sleep(ROLE_RETRY_MS / 1000)
        topic = self._cache.image.topic_by_id(key.topic_id)
        partition = None if topic is None else self._partitions.find(topic.name, key.partition)
        if topic is not None and partition is not None:
            await self.take_role(topic, key.partition, partition)

    async def on_changed(self, topic: Topic, number: int) -> None:
        """The partition has changed within its epoch."""
        led = self.led.get(PartitionKey(topic.topic_id, number))
        known = topic.partitions[number]
        partition = self._partitions.find(topic.name, number)
        if partition is not None and partition.replica is None and len(known.replicas) > 1:
            # A reassignment adds the second replica, and the leader goes on in its epoch.
            await self.take_role(topic, number, partition)
        elif led is not None and led.core.state.leader_epoch == known.leader_epoch:
            self._tell(led, topic)

    def _tell(self, led: LedPartition, topic: Topic) -> None:
        state = self._state(topic, topic.partitions[led.key.partition])
        led.carry_out(led.core.on_image(state, self._now_ms()))
        self._set_alarm(led)

    def on_brokers_changed(self) -> None:
        """Brokers have come, gone, or may be in ISRs by now."""
        for led in [*self.led.values()]:
            led.carry_out(led.core.on_brokers_changed(self._now_ms()))
            self._set_alarm(led)

    def on_stored(self, key: PartitionKey) -> None:
        """More of a partition is stored."""
        led = self.led.get(key)
        if led is not None:
            led.on_stored()
            return
        fetcher = self._followed.get(key)
        if fetcher is not None:
            fetcher.on_stored(key)

    def on_start_durable(self, key: PartitionKey) -> None:
        """The start of a partition is durable: a follower tells its leader."""
        fetcher = self._followed.get(key)
        if fetcher is not None:
            fetcher.on_moved(key)

    async def remove(self, topic: Topic, numbers: Iterable[int]) -> None:
        """Replicas are removed from this broker: they are not replicated any more."""
        for number in numbers:
            key = PartitionKey(topic.topic_id, number)
            async with self._role_change(key):
                await self._end_role(key)

    async def close(self) -> None:
        """Ends every role."""
        self._alarm.close()
        await self._saved.close()
        for retry in [*self._retries]:
            retry.cancel()
            await asyncio.wait([retry])
        await self.proposals.close()
        # Roles still change meanwhile, as other brokers stop: none begins any more.
        self._is_closed = True
        for fetcher in [*self._fetchers.values()]:
            await fetcher.stop()
        self._fetchers.clear()
        self._followed.clear()
        for led in self.led.values():
            led.end()
        self.led.clear()

    def _role_change(self, key: PartitionKey) -> asyncio.Lock:
        """Held across the waits of a change of role; kept while one holds it or waits for it."""
        return self._role_changes.setdefault(key, asyncio.Lock())

    def _now_ms(self) -> int:
        return self._env.clock.monotonic_ms()

    def _high_watermarks(self) -> dict[PartitionKey, int]:
        topics = self._cache.image.topics
        return {
            PartitionKey(topics[p.topic].topic_id, p.number): p.high_watermark
            for p in self._partitions
            if p.replica is not None and p.topic in topics
        }

    async def _end_role(self, key: PartitionKey) -> None:
        led = self.led.pop(key, None)
        if led is not None:
            led.end()
            self._alarm.cancel(key)
            self.on_leader_changed(key)
        fetcher = self._followed.pop(key, None)
        if fetcher is not None:
            await fetcher.remove(key)

    def _begin_role(
        self, key: PartitionKey, topic: Topic, number: int, partition: Partition
    ) -> None:
        known = topic.partitions[number]
        if self._is_closed:
            return
        if len(known.replicas) == 1 and known.leader == self._broker_id:
            partition.replica = None
            partition.advance_high_watermark(partition.stored_offset)
        elif partition.leadership.role is Role.LEADER:
            self._lead(key, topic, known, partition)
        elif known.leader not in (NO_LEADER, self._broker_id):
            self._follow(key, topic, known, partition)

    def _lead(
        self, key: PartitionKey, topic: Topic, known: PartitionRegistration, partition: Partition
    ) -> None:
        core = PartitionLeader(
            self._broker_id,
            PartitionLogView(partition),
            self._state(topic, known),
            self._brokers,
            self.config,
            high_watermark=partition.high_watermark,
            now_ms=self._now_ms(),
        )
        led = LedPartition(
            key,
            partition,
            core,
            self._env.clock,
            propose=self.proposals.propose,
            on_appended=lambda led: self.on_appended(led.key),
            on_offsets_moved=lambda led: self.on_offsets_moved(led.key),
        )
        self.led[key] = led
        led.carry_out(core.on_image(core.state, self._now_ms()))
        led.on_stored()
        self._set_alarm(led)
        self.on_leader_changed(key)

    def _follow(
        self, key: PartitionKey, topic: Topic, known: PartitionRegistration, partition: Partition
    ) -> None:
        settings = replication_settings(topic, self._defaults)
        follower = PartitionFollower(
            PartitionLogView(partition),
            leader_epoch=known.leader_epoch,
            high_watermark=partition.high_watermark,
            allows_loss=settings.allows_unclean or partition.log.leader_epoch < known.loss_epoch,
        )
        fetcher = self._fetcher(known.leader)
        self._followed[key] = fetcher
        fetcher.add(key, partition, follower)

    def _fetcher(self, leader_id: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(
                self._env,
                self._peers,
                leader_id,
                BrokerKey(self._broker_id, self._broker_epoch()),
                self.config,
                save_high_watermarks=self._saved.save,
                on_lost=self._on_lost,
                on_failure=self._on_failure,
            )
        return fetcher

    async def on_registered(self) -> None:
        """This broker has another epoch: it fetches under that from now on."""
        followed = [*self._followed]
        fetchers, self._fetchers = self._fetchers, {}
        self._followed.clear()
        for fetcher in fetchers.values():
            await fetcher.stop()
        image = self._cache.image
        for key in followed:
            topic = image.topic_by_id(key.topic_id)
            partition = None if topic is None else self._partitions.find(topic.name, key.partition)
            if partition is not None:
                await self._follow_again(key, partition)

    async def _follow_again(self, key: PartitionKey, partition: Partition) -> None:
        async with self._role_change(key):
            topic = self._cache.image.topic_by_id(key.topic_id)
            if topic is None or key in self.led or key in self._followed:
                return
            known = topic.partitions[key.partition]
            if known.leader_epoch == partition.leader_epoch:
                self._begin_role(key, topic, key.partition, partition)

    def _on_lost(self, partition: Partition, refusal: ApiError) -> None:
        self._partitions.set_offline(partition.topic, partition.number, refusal)

    def _state(self, topic: Topic, known: PartitionRegistration) -> PartitionState:
        settings = replication_settings(topic, self._defaults)
        return PartitionState(
            known.leader_epoch,
            known.partition_epoch,
            known.replicas,
            known.isr,
            settings.min_isr,
        )

    def _set_alarm(self, led: LedPartition) -> None:
        due_ms = led.core.deadline_ms()
        if due_ms is not None:
            self._alarm.set(led.key, due_ms)

    def _on_deadline(self, key: PartitionKey) -> None:
        led = self.led.get(key)
        if led is not None:
            led.carry_out(led.core.on_deadline(self._now_ms()))
            self._set_alarm(led)


def _nothing(key: PartitionKey) -> None:
    """Stands for a listener that is not set."""
