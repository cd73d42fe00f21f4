"""Produce: batches to the produce service."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    TopicProduceResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import KafkaError, kafka_code
from millrace_server.dialects.kafka.handlers.topic_names import name_of
from millrace_server.dialects.response_body import CloseConnection
from millrace_server.services.produce import ACKS_NONE, Produced
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

IDS_SINCE = 13


async def handle(
    services: Services, context: RequestContext, request: ProduceRequest, version: int
) -> ProduceResponse | None:
    """Appends; with acks 0 there is no response, and a refused batch ends the connection."""
    is_by_id = version >= IDS_SINCE
    names = [
        name_of(services, context, t.name, t.topic_id, is_by_id=is_by_id) for t in request.topics
    ]
    batches = [
        (name, partition.index, memoryview(partition.records or b""))
        for name, topic in zip(names, request.topics, strict=True)
        if name is not None
        for partition in topic.partitions
    ]
    try:
        produced = await services.produce.append(
            context, batches, acks=request.acks, timeout_ms=request.timeout_ms
        )
    except ApiError as error:
        # As in Kafka, of a partition that is not there, that is said.
        unknown = services.cluster.unknown_partition
        produced = [Produced.refused(t, n, unknown(context, t, n) or error) for t, n, _ in batches]
    if request.acks == ACKS_NONE:
        errors = [each.code for each in produced if each.code is not ErrorCode.NONE]
        if errors or None in names:
            raise CloseConnection("a batch sent with acks 0 was refused", errors)
        return None
    results = iter(produced)
    return ProduceResponse(
        tuple(
            _topic(topic, None if name is None else results)
            for name, topic in zip(names, request.topics, strict=True)
        )
    )


def _topic(topic: ProduceTopic, results: Iterator[Produced] | None) -> TopicProduceResponse:
    """The results of a topic; None for one that no topic has the id of."""
    if results is None:
        code = int(KafkaError.UNKNOWN_TOPIC_ID)
        partitions = [PartitionProduceResponse(each.index, code, -1) for each in topic.partitions]
    else:
        partitions = [_result(next(results)) for _ in topic.partitions]
    return TopicProduceResponse(topic.name, topic.topic_id, tuple(partitions))


def _result(produced: Produced) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        produced.partition,
        kafka_code(produced.code),
        produced.base_offset,
        produced.log_append_time_ms,
        produced.log_start_offset,
        (),
        produced.message,
    )
