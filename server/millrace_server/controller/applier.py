"""The metadata applier: makes this broker's partitions what the committed image says.

The only place that creates, opens, reconfigures, closes and deletes partitions. Every step can be
done again: a start applies the whole image, whatever a crash has left undone.

    replica without a directory id    the broker creates its log, and reports that it has
    replica with this directory's     its log is opened; where it is missing, data was lost, and the
                                      partition stays offline
    replica that this broker has no   its partition ends, and its directory goes
      more, topic that is gone

A partition takes appends only once the commit says in which directory it is (KIP-858). So a
directory that is missing and was never reported held no record, and one that was reported is never
begun anew. A disk that refuses leaves its partitions offline and the metadata as it is; `Opening`
tries again while the cause may pass.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.log import LogConfig, PartitionLog
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import PartitionRegistration, Topic
from millrace_server.metadata.image_difference import ImageDifference
from millrace_server.partitions.core_errors import as_api_error
from millrace_server.partitions.opening import Opening
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import NotOpenYet, PartitionTable
from millrace_server.partitions.storage import (
    create_logs,
    drop_logs,
    log_config,
    remove_partitions,
)
from millrace_server.topic_config import TopicConfig

log = get_logger("millrace.applier")
CREATORS = 4
"""Threads that create the logs of one topic: half of the worker threads, as in `opening`."""
Replica = tuple[uuid.UUID, int]
"""A topic id and a partition number, on this broker."""


class NotApplied(ApiError):
    """The change is committed, and this broker's disk refuses its part; it tries again."""


class MetadataApplier:
    """Applies one delta after another, on the partitions of one broker."""

    def __init__(
        self,
        *,
        env: Environment,
        partitions: PartitionTable,
        cache: MetadataCache,
        opening: Opening,
        defaults: Mapping[str, str],
        broker_id: int,
        on_deleted: Callable[[str], None],
        take_role: Callable[[Topic, int, Partition], Awaitable[None]],
        on_changed: Callable[[Topic, int], Awaitable[None]],
        end_roles: Callable[[Topic, Iterable[int]], Awaitable[None]],
        on_leader_changed: Callable[[str, int, PartitionRegistration], None],
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._cache = cache
        self._opening = opening
        self._defaults = defaults
        self._broker_id = broker_id
        self._on_deleted = on_deleted
        self._take_role = take_role
        self._on_changed = on_changed
        self._end_roles = end_roles
        self._on_leader_changed = on_leader_changed
        self._created: dict[Replica, PartitionLog] = {}
        """Logs that are created, and whose directory is not committed."""

    async def apply(self, delta: Delta | ImageDifference) -> list[Replica]:
        """Applies a committed change; the cache has its image already.

        Returns the replicas that were created and wait for the commit of their directory. Raises
        `NotApplied` when one could not be; all else is applied then.
        """
        image = self._cache.image
        for topic_id in delta.removed:
            removed = delta.before.topic_by_id(topic_id)
            if removed is not None:
                await self._delete(removed)
        created: list[Replica] = []
        refused: ApiError | OSError | None = None
        for topic_id in delta.changed:
            topic = image.topic_by_id(topic_id)
            if topic is None:
                continue
            try:
                created += await self._change(delta.before.topic_by_id(topic_id), topic)
            except (ApiError, OSError) as error:
                refused = error
        if refused is not None:
            self.give_up(created, refused)
            answer = as_api_error(refused)
            raise NotApplied(answer.code, answer.message) from refused
        return created

    def give_up(self, created: Sequence[Replica], cause: ApiError | OSError) -> None:
        """Takes replicas whose directory could not be committed out of hand, to be tried again."""
        for topic_id, number in created:
            unused = self._created.pop((topic_id, number), None)
            if unused is None:
                continue  # Its topic is deleted, or the report came through after all.
            unused.discard()
            topic = self._cache.image.topic_by_id(topic_id)
            if topic is not None and self._broker_id in topic.partitions[number].replicas:
                self._opening.open_later(topic, number, cause)

    async def _change(self, before: Topic | None, topic: Topic) -> list[Replica]:
        config = self._config(topic)
        if before is not None and before.configs != topic.configs:
            for partition in self._partitions.of_topic(topic.name):
                partition.reconfigure(config)
        held = set() if before is None else {*before.numbers_of(self._broker_id)}
        to_create: list[int] = []
        for number in topic.numbers_of(self._broker_id):
            if before is None or number not in held:
                to_create.append(number)
            elif self._is_made_anew(before, topic, number):
                await self._remove(topic, [number])
                to_create.append(number)
            else:
                await self._change_partition(before, topic, number)
        await self._remove(topic, sorted(held.difference(topic.numbers_of(self._broker_id))))
        return await self._create(topic, to_create, config) if to_create else []

    def _is_made_anew(self, before: Topic, topic: Topic, number: int) -> bool:
        """Whether the replica was removed and added again by changes that were skipped."""
        old, new = before.partitions[number], topic.partitions[number]
        return old.is_created(self._broker_id) and not new.is_created(self._broker_id)

    async def _change_partition(self, before: Topic, topic: Topic, number: int) -> None:
        old, new = before.partitions[number], topic.partitions[number]
        if new == old:
            return
        if new.is_created(self._broker_id) and (topic.topic_id, number) in self._created:
            created = self._created.pop((topic.topic_id, number))
            await self._opening.put_in_service(topic, number, created)
            self._on_leader_changed(topic.name, number, new)
        elif new.leader_epoch != old.leader_epoch:
            partition = self._partitions.find(topic.name, number)
            if partition is not None:
                await self._take_role(topic, number, partition)
            self._on_leader_changed(topic.name, number, new)
        else:
            await self._on_changed(topic, number)

    async def _create(
        self, topic: Topic, numbers: Sequence[int], config: LogConfig
    ) -> list[Replica]:
        """Creates the logs of new replicas, all or none. Raises `ApiError` and `OSError`."""
        for number in numbers:
            self._partitions.set_offline(topic.name, number, NotOpenYet(topic.name, number))
        try:
            logs = await self._created_logs(topic, numbers, config)
        except (ApiError, OSError) as error:
            for number in numbers:
                self._opening.create_later(topic, number, error)
            raise
        replicas: list[Replica] = []
        for number, created in sorted(logs.items()):
            self._created[topic.topic_id, number] = created
            replicas.append((topic.topic_id, number))
        return replicas

    async def _created_logs(
        self, topic: Topic, numbers: Sequence[int], config: LogConfig
    ) -> dict[int, PartitionLog]:
        """Creates logs in several threads: their syncs end together."""
        env = self._env
        parts = await asyncio.gather(
            *(
                env.spawn.blocking(
                    create_logs,
                    env.disk,
                    self._cache.image,
                    topic.name,
                    str(topic.topic_id),
                    numbers[first::CREATORS],
                    config,
                )
                for first in range(min(CREATORS, len(numbers)))
            ),
            return_exceptions=True,
        )
        logs: dict[int, PartitionLog] = {}
        for part in parts:
            if isinstance(part, dict):
                logs |= part
        errors = [part for part in parts if isinstance(part, BaseException)]
        if errors:
            await env.spawn.blocking(drop_logs, env.disk, topic.name, logs)
            raise errors[0]
        return logs

    async def _delete(self, topic: Topic) -> None:
        self._on_deleted(topic.name)
        await self._end(topic, range(topic.partition_count))

    async def _remove(self, topic: Topic, numbers: Sequence[int]) -> None:
        """Ends replicas that other brokers have now, and removes their directories."""
        for number in numbers:
            known = topic.partitions[number]
            partition = self._partitions.find(topic.name, number)
            if partition is not None:
                partition.stop_leading(known.leader_epoch, known.leader)
            self._on_leader_changed(topic.name, number, known)
        if numbers:
            await self._end(topic, numbers)
            log.info("replicas removed", topic=topic.name, partitions=list(numbers))

    async def _end(self, topic: Topic, numbers: Sequence[int]) -> None:
        for number in numbers:
            created = self._created.pop((topic.topic_id, number), None)
            if created is not None:
                created.discard()
        await self._end_roles(topic, numbers)
        for partition in self._partitions.remove(topic.name, numbers):
            await partition.abandon()
        await self._partitions.until_not_being_opened(topic.name)
        await self._env.spawn.blocking(
            remove_partitions, self._env.disk, topic.name, str(topic.topic_id), numbers
        )

    def _config(self, topic: Topic) -> LogConfig:
        return log_config(TopicConfig(topic.configs, self._defaults))
