"""Metadata: topics, their partitions, and the addresses of the brokers."""

from __future__ import annotations

import uuid

from millrace_protocol.acls import Operation, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.metadata import (
    BrokerMetadata,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from millrace_server.api_error import ApiError
from millrace_server.loop.fair_scheduler import NAME_LENGTH
from millrace_server.metadata.image import Topic
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CHUNK_ENTRIES = 50
"""Topics and partitions described in one chunk, some 300 us."""
_NO_ID = uuid.UUID(int=0)


async def handle(
    services: Services, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    """Describes the topics of the request, or all."""
    cluster = services.cluster
    if request.topics is None:
        context.check_any(Operation.DESCRIBE, ResourceType.TOPIC)
    topics: list[TopicMetadata] = []
    entries = 0
    for name in cluster.visible_topics(context) if request.topics is None else request.topics:
        if entries >= CHUNK_ENTRIES:
            entries = 0
            await services.scheduler.yield_()
        topics.append(_describe(services, context, name))
        entries += 1 + len(topics[-1].partitions) + len(name) // NAME_LENGTH
    return MetadataResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=tuple(
            BrokerMetadata(b.node_id, b.host, b.port, b.rack)
            for b in cluster.brokers(context.listener)
        ),
        topics=tuple(topics),
    )


def _describe(services: Services, context: RequestContext, name: str) -> TopicMetadata:
    try:
        topic = services.cluster.topic(context, name)
    except ApiError as error:
        return TopicMetadata(error.code, error.message, name, _NO_ID, False, ())
    return TopicMetadata(
        ErrorCode.NONE,
        None,
        name,
        topic.topic_id,
        services.cluster.is_internal(name),
        tuple(_partition(services, topic, number) for number in range(topic.partition_count)),
    )


def _partition(services: Services, topic: Topic, number: int) -> PartitionMetadata:
    state = services.topics.partition_state(topic, number)
    return PartitionMetadata(
        state.code, number, state.leader, state.leader_epoch, state.replicas, state.isr
    )
