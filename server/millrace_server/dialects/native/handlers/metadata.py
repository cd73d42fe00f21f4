"""Metadata: the image and the addresses, as a client needs them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.metadata import (
    BrokerMetadata,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered, AnswerPieces
from millrace_server.loop.fair_scheduler import NAME_LENGTH
from millrace_server.metadata.image import Topic
from millrace_server.net.connection import Connection
from millrace_server.topic_config import INTERNAL_TOPIC_PREFIX

PIECE_ENTRIES = 50
"""Topics and partitions described in one go, some 300 us."""
_NO_ID = uuid.UUID(int=0)


def handle(broker: Broker, connection: Connection, request: MetadataRequest) -> Answered:
    """Describes the topics asked for, or all."""
    names = request.topics
    if names is None:
        names = tuple(sorted(broker.image.topics))
    entries = len(names)
    if entries <= PIECE_ENTRIES:
        entries += sum(_partition_count(broker, name) for name in names)
    if entries > PIECE_ENTRIES:
        return _in_pieces(broker, names)
    return _response(broker, [_describe(broker, name) for name in names])


def _in_pieces(broker: Broker, names: Sequence[str]) -> AnswerPieces:
    described: list[TopicMetadata] = []
    entries = 0
    for name in names:
        described.append(_describe(broker, name))
        entries += 1 + len(described[-1].partitions) + len(name) // NAME_LENGTH
        if entries >= PIECE_ENTRIES:
            entries = 0
            yield None
    return _response(broker, described)


def _partition_count(broker: Broker, name: str) -> int:
    topic = broker.image.topics.get(name)
    return 0 if topic is None else topic.partition_count


def _response(broker: Broker, topics: Sequence[TopicMetadata]) -> MetadataResponse:
    brokers = broker.image.brokers.values()
    return MetadataResponse(
        cluster_id=str(broker.image.cluster_id),
        controller_id=broker.config.node_id,
        brokers=tuple(
            BrokerMetadata(b.broker_id, *broker.address_of(b)) for b in brokers if not b.is_fenced
        ),
        topics=tuple(topics),
    )


def _describe(broker: Broker, name: str) -> TopicMetadata:
    try:
        topic = broker.image.topic(name)
    except ApiError as refused:
        return TopicMetadata(refused.code, refused.message, name, _NO_ID, False, ())
    return TopicMetadata(
        ErrorCode.NONE,
        None,
        name,
        topic.topic_id,
        name.startswith(INTERNAL_TOPIC_PREFIX),
        tuple(_partition(broker, topic, number) for number in range(topic.partition_count)),
    )


def _partition(broker: Broker, topic: Topic, number: int) -> PartitionMetadata:
    state = broker.topics.partition_state(topic, number)
    return PartitionMetadata(
        state.code, number, state.leader, state.leader_epoch, state.replicas, state.isr
    )
