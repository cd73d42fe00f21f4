"""Consumer groups: the coordinator of each, and the topic they are kept in.

A group's coordinator is found by the partition of `__consumer_offsets` that its name hashes to.
The topic is made when the first group is looked for. Owns the loading of the coordinators after a
start; what they decide is `group.coordinator`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.group_shard import GroupShard
from millrace_server.environment.seams import Environment
from millrace_server.group.config import GroupConfig
from millrace_server.group.coordinator import Coordinator
from millrace_server.group.effects import Effect, GroupListing, Result
from millrace_server.group.offsets_topic import OFFSETS_TOPIC, partition_for_group
from millrace_server.group.requests import Moment
from millrace_server.group.room import Room
from millrace_server.logs import get_logger
from millrace_server.loop.alarm import Alarm
from millrace_server.metadata.cache import MetadataCache
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.services.topics import Topics

log = get_logger("millrace.groups")
OFFSETS_TOPIC_SETTINGS = {"cleanup.policy": "compact"}

Event = Callable[[Coordinator, asyncio.Future[Result], Moment], Sequence[Effect]]


class Groups:
    """The group service. `partitions` is for the offsets topic when it is made."""

    def __init__(
        self,
        *,
        env: Environment,
        partitions: PartitionTable,
        topics: Topics,
        cache: MetadataCache,
        config: GroupConfig,
        offsets_partitions: int,
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._topics = topics
        self._cache = cache
        self._config = config
        self._room = Room(config.memory_bytes)
        self._offsets_partitions = offsets_partitions
        self._alarm: Alarm[GroupShard] = Alarm(
            env.clock, asyncio.get_running_loop(), lambda shard: shard.ring()
        )
        self._shards: dict[int, GroupShard | ApiError] = {}
        self._loads: list[asyncio.Task[None]] = []
        self._making = asyncio.Lock()
        self._is_closed = False

    async def start(self, wait_ms: int) -> None:
        """Loads every coordinator there is; what takes longer goes on in the background.

        Until it is loaded a group is refused.
        """
        topic = self._cache.image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            self._load(range(topic.partition_count))
            await asyncio.wait(self._loads, timeout=wait_ms / 1000)

    async def stop(self) -> None:
        """Answers every waiting request, and writes nothing after that."""
        self._is_closed = True
        self._alarm.close()
        for load in self._loads:
            load.cancel()
        if self._loads:
            await asyncio.wait(self._loads)
        self.answer_waiting()

    def answer_waiting(self) -> None:
        """Tells members who wait for others, or for the disk, to find their coordinator anew."""
        for shard in self._shards.values():
            if isinstance(shard, GroupShard):
                shard.close()

    async def make_topic(self) -> None:
        """Makes the offsets topic when it is not there. Raises `ApiError`."""
        if OFFSETS_TOPIC in self._cache.image.topics:
            return
        async with self._making:
            if OFFSETS_TOPIC in self._cache.image.topics:
                return
            await self._topics.create(
                OFFSETS_TOPIC,
                partitions=self._offsets_partitions,
                configs=OFFSETS_TOPIC_SETTINGS,
                is_internal=True,
            )
            self._load(range(self._offsets_partitions))
            # They are empty, so this takes no time, and the first member need not come again.
            await asyncio.wait(self._loads)

    def coordinator(self, group: str) -> Coordinator:
        """The coordinator of a group, for questions. Raises `ApiError`."""
        return self._shard(group).coordinator

    def ask(self, group: str, event: Event) -> asyncio.Future[Result]:
        """Runs an event of the group's coordinator; its answer comes later. Raises `ApiError`."""
        shard = self._shard(group)
        return shard.ask(lambda token, moment: event(shard.coordinator, token, moment))

    def tell(self, group: str, event: Callable[[Coordinator, Moment], None]) -> None:
        """Runs an event of the group's coordinator. Raises `ApiError`, also from the event."""
        shard = self._shard(group)
        shard.tell(lambda moment: event(shard.coordinator, moment))

    def on_topic_deleted(self, topic: str) -> None:
        """The offsets that groups have committed for a topic go with it."""
        for shard in self._coordinating():
            shard.tell(partial(shard.coordinator.on_topic_deleted, topic))

    def listing(self) -> list[GroupListing]:
        """All groups, by name. Raises `ApiError` while any coordinator is being loaded."""
        found: list[GroupListing] = []
        for shard in self._shards.values():
            if isinstance(shard, ApiError):
                raise shard
            found += shard.coordinator.list_groups()
        return sorted(found)

    def states(self) -> Iterator[str]:
        """The state of each group, but for those whose coordinator is being loaded."""
        for shard in list(self._coordinating()):
            try:
                groups = shard.coordinator.list_groups()
            except ApiError:
                continue
            yield from (group.state.value for group in groups)

    def _coordinating(self) -> Iterator[GroupShard]:
        return (shard for shard in self._shards.values() if isinstance(shard, GroupShard))

    def _shard(self, group: str) -> GroupShard:
        topic = self._cache.image.topics.get(OFFSETS_TOPIC)
        if topic is None or self._is_closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards.get(partition_for_group(group, topic.partition_count))
        if shard is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(shard, ApiError):
            raise shard
        return shard

    def _load(self, numbers: range) -> None:
        self._loads = [
            self._env.spawn.task(self._load_one(number), name=f"groups {number}")
            for number in numbers
        ]

    async def _load_one(self, number: int) -> None:
        await self._partitions.until_opened(OFFSETS_TOPIC, number)
        try:
            partition = self._partitions.get(OFFSETS_TOPIC, number)
            shard = GroupShard(partition, self._config, self._room, self._env, self._alarm)
            # In its place before it is loaded: until then the coordinator itself refuses.
            self._shards[number] = shard
            await shard.load()
        except ApiError as refused:
            log.error("groups not served", partition=number, reason=refused.message)
            self._shards[number] = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, refused.message)
