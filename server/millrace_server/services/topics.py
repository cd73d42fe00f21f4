"""Topics: create, widen, configure, delete.

Each change is one `MetadataLog.change`: decided by the controller, prepared on the disk, written,
and then put in service.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from millrace_server.api_error import ApiError
from millrace_server.controller.metadata_log import MetadataLog, NotWritten
from millrace_server.environment.seams import Environment
from millrace_server.log import PartitionLog
from millrace_server.logs import get_logger
from millrace_server.metadata.controller import Controller
from millrace_server.metadata.image import ClusterImage, Topic
from millrace_server.metadata.records import MetadataRecord
from millrace_server.partitions.core_errors import as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import NotOpenYet, PartitionTable
from millrace_server.partitions.storage import create_logs, drop_logs, log_config, remove_partitions
from millrace_server.topic_config import TopicConfig

log = get_logger("millrace.topics")


class Topics:
    """The topic service."""

    def __init__(
        self,
        *,
        env: Environment,
        partitions: PartitionTable,
        metadata: MetadataLog,
        controller: Controller,
        image: ClusterImage,
        defaults: Mapping[str, str],
        make_partition: Callable[[str, int, PartitionLog], Partition],
        on_deleted: Callable[[str], None],
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._metadata = metadata
        self._controller = controller
        self._image = image
        self._defaults = defaults
        self._make_partition = make_partition
        self._on_deleted = on_deleted

    def config(self, name: str) -> TopicConfig:
        """The settings in force for a topic. Raises `ApiError`."""
        return TopicConfig(self._controller.topic(name).configs, self._defaults)

    async def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
        is_internal: bool = False,
    ) -> Topic:
        """Creates a topic, or says what it would be like. Raises `ApiError`."""

        async def work() -> Topic:
            topic_id = str(uuid.UUID(int=self._env.rng.getrandbits(128), version=4))
            created = self._controller.create_topic(
                name,
                topic_id=topic_id,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs or {},
                is_internal=is_internal,
            )
            topic = Topic(
                name,
                topic_id,
                created.partitions,
                created.replication_factor,
                created.configs,
            )
            if validate_only:
                return topic
            await self._add(topic, range(topic.partitions), [created])
            log.info("topic created", topic=name, partitions=topic.partitions)
            return topic

        return await self._metadata.change(work)

    async def add_partitions(
        self, name: str, partitions: int, *, validate_only: bool = False
    ) -> None:
        """Widens a topic to `partitions` partitions. Raises `ApiError`."""

        async def work() -> None:
            records = self._controller.add_partitions(name, partitions)
            if validate_only:
                return
            topic = self._image.topics[name]
            await self._add(topic, range(topic.partitions, partitions), records)
            log.info("partitions added", topic=name, partitions=partitions)

        await self._metadata.change(work)

    async def change_config(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Changes a topic's settings, all or none; None goes back to the default."""

        async def work() -> None:
            records = self._controller.change_config(name, changes)
            if validate_only:
                return
            await self._metadata.write(records)
            config = log_config(self.config(name))
            for partition in self._partitions.of_topic(name):
                partition.reconfigure(config)
            log.info("topic settings changed", topic=name, changes=dict(changes))

        await self._metadata.change(work)

    async def delete(self, name: str) -> None:
        """Deletes a topic with its records. Raises `ApiError`."""

        async def work() -> None:
            records = self._controller.delete_topic(name)
            topic = self._image.topics[name]
            self._refuse_unopened(topic)
            await self._metadata.write(records)
            self._on_deleted(name)
            for partition in self._partitions.remove_topic(name):
                await partition.abandon()
            await self._partitions.until_not_being_opened(name)
            await self._env.spawn.blocking(
                remove_partitions, self._env.disk, name, topic.topic_id, range(topic.partitions)
            )
            log.info("topic deleted", topic=name)

        await self._metadata.change(work)

    def _refuse_unopened(self, topic: Topic) -> None:
        """Raises `ApiError` while a start looks through the files that a deletion would remove."""
        for number in range(topic.partitions):
            refused = self._partitions.offline(topic.name, number)
            if isinstance(refused, NotOpenYet):
                raise refused

    async def _add(self, topic: Topic, numbers: range, records: Sequence[MetadataRecord]) -> None:
        """Makes new partitions on the disk, writes the records that tell of them, serves them."""
        disk, blocking = self._env.disk, self._env.spawn.blocking
        config = log_config(TopicConfig(topic.configs, self._defaults))
        try:
            logs = await blocking(
                create_logs, disk, self._image, topic.name, topic.topic_id, numbers, config
            )
        except OSError as error:
            raise as_api_error(error) from error
        try:
            await self._metadata.write(records)
        except NotWritten:
            await blocking(drop_logs, disk, topic.name, logs)
            raise
        except ApiError:
            # Nobody knows whether the records are on the disk, so what they tell of has to stay.
            for created in logs.values():
                created.discard()
            raise
        for number, created in logs.items():
            self._partitions.add(self._make_partition(topic.name, number, created))
