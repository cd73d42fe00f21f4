"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from collections.abc import Iterable

from millrace_protocol.acls import CLUSTER_NAME, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.metadata import (
    NO_ID,
    UNKNOWN_OPERATIONS,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from millrace_protocol.metadata_records import NO_LEADER
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import KafkaError, kafka_code
from millrace_server.dialects.kafka.handlers.topic_names import named_topic
from millrace_server.loop.fair_scheduler import NAME_LENGTH
from millrace_server.metadata.image import Topic
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.services.topics import PartitionState

CHUNK_ENTRIES = 50
"""Topics and partitions described in one chunk, some 300 us."""
NULL_IS_ALL_SINCE = 1
IDS_SINCE = 12


async def handle(
    services: Services, context: RequestContext, request: MetadataRequest, version: int
) -> MetadataResponse:
    """Describes the topics of the request, or all; creates those that are not there if the broker
    does so, and the client allows it."""
    cluster = services.cluster
    asked = request.topics or ()
    if version < IDS_SINCE and any(map(_is_by_id, asked)):
        refused = (MetadataTopic(ErrorCode.INVALID_REQUEST, t.name or "") for t in asked)
        return MetadataResponse(
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller_id,
            topics=tuple(refused),
        )
    brokers = cluster.brokers(context.listener)
    in_service = {broker.node_id for broker in brokers}
    topics: list[MetadataTopic] = []
    entries = 0
    for wanted in _wanted(services, context, request, version):
        if entries >= CHUNK_ENTRIES:
            entries = 0
            await services.scheduler.yield_()
        described = _describe(services, context, wanted, in_service)
        is_unknown = described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_unknown and request.allow_auto_topic_creation and cluster.creates_topics:
            described = await _create(services, context, wanted, in_service)
        if (
            request.include_topic_authorized_operations
            and described.name
            and (described.error_code == ErrorCode.NONE)
        ):
            allowed = context.operations(ResourceType.TOPIC, described.name)
            described.topic_authorized_operations = allowed
        topics.append(described)
        entries += 1 + len(topics[-1].partitions) + len(wanted.name or "") // NAME_LENGTH
    of_cluster = UNKNOWN_OPERATIONS
    if request.include_cluster_authorized_operations:
        of_cluster = context.operations(ResourceType.CLUSTER, CLUSTER_NAME)
    return MetadataResponse(
        cluster_authorized_operations=of_cluster,
        brokers=tuple(MetadataBroker(b.node_id, b.host, b.port, b.rack) for b in brokers),
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=tuple(topics),
    )


def _wanted(
    services: Services, context: RequestContext, request: MetadataRequest, version: int
) -> Iterable[MetadataRequestTopic]:
    topics = request.topics
    if topics is None or (version < NULL_IS_ALL_SINCE and not topics):
        return [
            MetadataRequestTopic(NO_ID, name) for name in services.cluster.visible_topics(context)
        ]
    return topics


async def _create(
    services: Services, context: RequestContext, wanted: MetadataRequestTopic, in_service: set[int]
) -> MetadataTopic:
    assert wanted.name is not None
    try:
        await services.run(services.topics.create(context, wanted.name))
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return MetadataTopic(kafka_code(error.code), wanted.name)
    return _describe(services, context, wanted, in_service)


def _is_by_id(wanted: MetadataRequestTopic) -> bool:
    # A Java client sends an empty name beside an id.
    return wanted.name is None or wanted.topic_id != NO_ID


def _describe(
    services: Services, context: RequestContext, wanted: MetadataRequestTopic, in_service: set[int]
) -> MetadataTopic:
    if _is_by_id(wanted):
        found = services.cluster.topic_by_id(context, wanted.topic_id)
        if found is None:
            return MetadataTopic(KafkaError.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        topic = found
    else:
        try:
            topic = named_topic(services, context, wanted.name or "")
        except ApiError as error:
            return MetadataTopic(kafka_code(error.code), wanted.name)
    numbers = range(topic.partition_count)
    return MetadataTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        services.cluster.is_internal(topic.name),
        tuple(_partition(services, topic, number, in_service) for number in numbers),
    )


def _partition(
    services: Services, topic: Topic, number: int, in_service: set[int]
) -> MetadataPartition:
    state = services.topics.partition_state(topic, number)
    return MetadataPartition(
        partition_code(state),
        number,
        state.leader,
        state.leader_epoch,
        state.replicas,
        state.isr,
        tuple(each for each in state.replicas if each not in in_service),
    )


def partition_code(state: PartitionState) -> int:
    """The error of a partition: none, or that it has no leader."""
    return ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE
