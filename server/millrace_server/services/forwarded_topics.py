"""Changes of topics on a broker that is not the active controller: it asks the one that is.

The answer comes back when this broker's image has the change, so that a client which asks the same
broker again finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    PartitionCount,
    ReplicaAssignment,
    TopicConfig,
    TopicResult,
)
from millrace_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigChanges,
)
from millrace_protocol.schema import Message
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.metadata.assignments import Assignments
from millrace_server.metadata.image import Topic
from millrace_server.peers.calls import refusal

M = TypeVar("M", bound=Message)
FORWARD_TIMEOUT_MS = 30_000


class ForwardedTopics:
    """The methods of `Topics` that change something. They raise `ApiError`."""

    def __init__(self, controller: ControllerCalls, metadata: ClusterMetadata) -> None:
        self._controller = controller
        self._metadata = metadata

    async def create(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str | None],
        assignments: Assignments,
    ) -> Topic:
        """See `Topics.create`."""
        placed = tuple(map(ReplicaAssignment, assignments))
        new = NewTopic(name, partitions, replication_factor, _entries(configs), placed)
        request = CreateTopicsRequest((new,), validate_only=False)
        (created,) = (await self._forward(request, CreateTopicsResponse)).topics
        if created.error_code != ErrorCode.NONE:
            raise refusal(created.error_code, created.error_message)
        topic_id = created.topic_id
        image = await self._metadata.publisher.until(lambda image: topic_id in image.names)
        return image.topics[image.names[topic_id]]

    async def add_partitions(self, name: str, partitions: int, assignments: Assignments) -> None:
        """See `Topics.add_partitions`."""
        placed = tuple(map(ReplicaAssignment, assignments))
        request = CreatePartitionsRequest((PartitionCount(name, partitions, placed),), False)
        _check((await self._forward(request, CreatePartitionsResponse)).topics)

    async def change_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """See `Topics.change_config`."""
        request = AlterConfigsRequest((ConfigChanges(name, _entries(changes)),), False)
        _check((await self._forward(request, AlterConfigsResponse)).topics)

    async def delete(self, name: str) -> None:
        """See `Topics.delete`."""
        known = self._metadata.image.topics.get(name)
        _check((await self._forward(DeleteTopicsRequest((name,)), DeleteTopicsResponse)).topics)
        if known is not None:
            topic_id = known.topic_id
            await self._metadata.publisher.until(lambda image: topic_id not in image.names)

    async def _forward(self, request: Message, response: type[M]) -> M:
        return await self._controller.forward(request, response, timeout_ms=FORWARD_TIMEOUT_MS)


def _entries(configs: Mapping[str, str | None]) -> tuple[TopicConfig, ...]:
    return tuple(TopicConfig(name, value) for name, value in configs.items())


def _check(results: tuple[TopicResult, ...]) -> None:
    for result in results:
        if result.error_code != ErrorCode.NONE:
            raise refusal(result.error_code, result.error_message)
