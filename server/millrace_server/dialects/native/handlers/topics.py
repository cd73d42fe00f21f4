"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.admin import (
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    PartitionCount,
    ReplicaAssignment,
    TopicResult,
)
from millrace_server.api_error import ApiError
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.topic_config import INTERNAL_TOPIC_PREFIX

_NO_ID = uuid.UUID(int=0)

CHUNK_TOPICS = 20
"""Answered in one chunk when that needs no disk, some 300 us."""
T = TypeVar("T")
U = TypeVar("U")


async def create(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Creates each topic for itself."""
    check_once([t.name for t in request.topics], "topic")
    return CreateTopicsResponse(
        await services.run(
            _each(
                services,
                request.topics,
                lambda t: _create(
                    services,
                    context,
                    t,
                    request.validate_only,
                    is_from_broker=context.broker_id is not None,
                ),
            )
        )
    )


async def _create(
    services: Services,
    context: RequestContext,
    new: NewTopic,
    validate_only: bool,
    *,
    is_from_broker: bool,
) -> CreatedTopic:
    try:
        topic = await services.topics.create(
            context,
            new.name,
            partitions=new.partitions,
            replication_factor=new.replication_factor,
            configs={c.name: c.value for c in new.configs},
            assignments=_replicas(new.assignments),
            validate_only=validate_only,
            # A broker asks for what it needs itself, too.
            is_internal=is_from_broker and new.name.startswith(INTERNAL_TOPIC_PREFIX),
        )
    except ApiError as refused:
        return CreatedTopic(new.name, refused.code, refused.message, _NO_ID, -1, -1)
    return CreatedTopic(
        new.name,
        ErrorCode.NONE,
        None,
        topic.topic_id,
        topic.partition_count,
        topic.replication_factor,
    )


async def delete(
    services: Services, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Deletes each topic for itself."""
    return DeleteTopicsResponse(
        await services.run(
            _each(services, request.topics, lambda name: _delete(services, context, name))
        )
    )


async def _delete(services: Services, context: RequestContext, name: str) -> TopicResult:
    try:
        await services.topics.delete(context, name)
    except ApiError as refused:
        return TopicResult(name, refused.code, refused.message)
    return TopicResult(name, ErrorCode.NONE, None)


async def add_partitions(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Widens each topic for itself."""
    check_once([t.name for t in request.topics], "topic")

    async def widen(wanted: PartitionCount) -> TopicResult:
        name = wanted.name
        try:
            await services.topics.add_partitions(
                context,
                name,
                wanted.partitions,
                assignments=_replicas(wanted.assignments),
                validate_only=request.validate_only,
            )
        except ApiError as error:
            return TopicResult(name, error.code, error.message)
        return TopicResult(name, ErrorCode.NONE, None)

    return CreatePartitionsResponse(await services.run(_each(services, request.topics, widen)))


def _replicas(assignments: Sequence[ReplicaAssignment]) -> list[tuple[int, ...]]:
    return [each.replicas for each in assignments]


async def _each(
    services: Services, topics: Sequence[T], change: Callable[[T], Awaitable[U]]
) -> tuple[U, ...]:
    """The results of one change after another; a few are a chunk."""
    results: list[U] = []
    for topic in topics:
        results.append(await change(topic))
        if not len(results) % CHUNK_TOPICS:
            await services.scheduler.yield_()
    return tuple(results)
