"""DescribeTopicPartitions: topics by name, in pages of partitions (KIP-966)."""

from __future__ import annotations

from bisect import bisect_left

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import topic_partitions as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.dialects.kafka.handlers.metadata import partition_code
from millrace_server.dialects.kafka.handlers.topic_names import named_topic
from millrace_server.metadata.image import Topic
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

PAGE_PARTITIONS_MAX = 2_000
"""Kafka's `max.request.partition.size.limit`."""
CHUNK_ENTRIES = 50
"""Topics and partitions described in one chunk, some 300 us."""


async def handle(
    services: Services,
    context: RequestContext,
    request: messages.DescribeTopicPartitionsRequest,
    version: int,
) -> messages.DescribeTopicPartitionsResponse:
    """The page that begins at the cursor; a partition that is not there any more is skipped."""
    names = sorted({topic.name for topic in request.topics}) or services.cluster.visible_topics(
        context
    )
    first = 0
    if request.cursor is not None and request.topics and request.cursor.topic_name not in names:
        refused = (
            messages.DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name)
            for name in names
        )
        return messages.DescribeTopicPartitionsResponse(0, tuple(refused))
    if request.cursor is not None:
        names = names[bisect_left(names, request.cursor.topic_name) :]
        if names and names[0] == request.cursor.topic_name:
            first = max(request.cursor.partition_index, 0)
    left = max(1, min(request.response_partition_limit, PAGE_PARTITIONS_MAX))
    in_service = {broker.node_id for broker in services.cluster.brokers(context.listener)}
    topics: list[messages.DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if not left:
            cursor = messages.Cursor(name, 0)
            return messages.DescribeTopicPartitionsResponse(0, tuple(topics), cursor)
        await services.scheduler.yield_()
        try:
            topic = named_topic(services, context, name)
        except ApiError as error:
            code = kafka_code(error.code)
            topics.append(messages.DescribeTopicPartitionsResponseTopic(code, name))
            first = 0
            continue
        numbers = range(first, min(topic.partition_count, first + left))
        found: list[messages.DescribeTopicPartitionsResponsePartition] = []
        for number in numbers:
            found.append(_partition(services, topic, number, in_service))
            if not len(found) % CHUNK_ENTRIES:
                await services.scheduler.yield_()
        topics.append(
            messages.DescribeTopicPartitionsResponseTopic(
                ErrorCode.NONE,
                name,
                topic.topic_id,
                services.cluster.is_internal(name),
                tuple(found),
            )
        )
        left -= len(numbers)
        if numbers.stop < topic.partition_count:
            cursor = messages.Cursor(name, numbers.stop)
            return messages.DescribeTopicPartitionsResponse(0, tuple(topics), cursor)
        first = 0
    return messages.DescribeTopicPartitionsResponse(0, tuple(topics))


def _partition(
    services: Services, topic: Topic, number: int, in_service: set[int]
) -> messages.DescribeTopicPartitionsResponsePartition:
    state = services.topics.partition_state(topic, number)
    known = topic.partitions[number]
    return messages.DescribeTopicPartitionsResponsePartition(
        partition_code(state),
        number,
        state.leader,
        state.leader_epoch,
        state.replicas,
        state.isr,
        known.elr,
        known.last_known_elr,
        tuple(each for each in state.replicas if each not in in_service),
    )
