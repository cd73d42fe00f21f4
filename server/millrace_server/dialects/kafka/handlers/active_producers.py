"""DescribeProducers: the idempotent producers that partitions know."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import active_producers as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.dialects.kafka.handlers.topic_names import check_name
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def handle(
    services: Services,
    context: RequestContext,
    request: messages.DescribeProducersRequest,
    version: int,
) -> messages.DescribeProducersResponse:
    """Answers each partition for itself, where this broker leads it."""
    topics: list[messages.TopicResponse] = []
    for topic in request.topics:
        found: list[messages.PartitionResponse] = []
        for number in topic.partition_indexes:
            found.append(_describe(services, context, topic.name, number))
            await services.scheduler.yield_()
        topics.append(messages.TopicResponse(topic.name, tuple(found)))
    return messages.DescribeProducersResponse(topics=tuple(topics))


def _describe(
    services: Services, context: RequestContext, topic: str, number: int
) -> messages.PartitionResponse:
    try:
        check_name(topic)
        found = services.offsets.producers(context, topic, number)
    except ApiError as error:
        return messages.PartitionResponse(number, kafka_code(error.code), error.message)
    return messages.PartitionResponse(
        number,
        ErrorCode.NONE,
        None,
        tuple(
            messages.ProducerState(each.producer_id, each.epoch, each.last_sequence, each.used_ms)
            for each in found
        ),
    )
