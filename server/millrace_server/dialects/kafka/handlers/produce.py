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
from millrace_server.dialects.kafka.handlers.new_leaders import endpoints, new_leader
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
    results = iter([_result(services, each) for each in produced])
    response = ProduceResponse(
        tuple(
            _topic(topic, None if name is None else results)
            for name, topic in zip(names, request.topics, strict=True)
        )
    )
    if any(each.code for each in produced):
        told = (r.current_leader for topic in response.responses for r in topic.partition_responses)
        response.node_endpoints = endpoints(services, context, told)
    return response


def _topic(
    topic: ProduceTopic, results: Iterator[PartitionProduceResponse] | None
) -> TopicProduceResponse:
    """The results of a topic; None for one that no topic has the id of."""
    if results is None:
        code = int(KafkaError.UNKNOWN_TOPIC_ID)
        partitions = [PartitionProduceResponse(each.index, code, -1) for each in topic.partitions]
    else:
        partitions = [next(results) for _ in topic.partitions]
    return TopicProduceResponse(topic.name, topic.topic_id, tuple(partitions))


def _result(services: Services, produced: Produced) -> PartitionProduceResponse:
    code = kafka_code(produced.code)
    return PartitionProduceResponse(
        produced.partition,
        code,
        produced.base_offset,
        produced.log_append_time_ms,
        produced.log_start_offset,
        (),
        produced.message,
        new_leader(services, produced.topic, produced.partition, code) if code else None,
    )
