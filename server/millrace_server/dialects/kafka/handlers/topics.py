"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from millrace_protocol.acls import Operation, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import KafkaError, kafka_code
from millrace_server.dialects.kafka.handlers.configs import topic_settings
from millrace_server.dialects.kafka.handlers.repeated import repeated
from millrace_server.dialects.kafka.handlers.topic_names import check_name
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

IDS_SINCE = 6
THROTTLING_SINCE_CREATE, THROTTLING_SINCE_DELETE = 6, 5
"""The versions whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
_TWICE = "The topic is named more than once"
_NAME_OR_ID = "A topic is named either by its name or by its id"


async def create(
    services: Services, context: RequestContext, request: CreateTopicsRequest, version: int
) -> CreateTopicsResponse:
    """Creates each topic for itself."""
    context.knows_throttling = version >= THROTTLING_SINCE_CREATE
    return await services.run(_create_all(services, context, request))


async def _create_all(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    twice = repeated(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, _TWICE)
            results.append(
                await _create(services, context, topic, validate_only=request.validate_only)
            )
        except ApiError as error:
            code = kafka_code(error.code)
            results.append(CreatableTopicResult(topic.name, NO_ID, code, error.message))
    return CreateTopicsResponse(topics=tuple(results))


async def _create(
    services: Services, context: RequestContext, new: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    check_name(new.name)
    without = [each.name for each in new.configs if each.value is None]
    if without:
        message = f"Setting {without[0]!r} has no value; leave it out for its default"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    placed = {each.partition_index: each.broker_ids for each in new.assignments}
    topic = await services.topics.create(
        context,
        new.name,
        partitions=new.num_partitions,
        replication_factor=new.replication_factor,
        configs={each.name: each.value for each in new.configs},
        assignments=[placed.get(number, ()) for number in range(len(new.assignments))],
        validate_only=validate_only,
    )
    topic_id = NO_ID if validate_only else topic.topic_id
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, new.name):
        denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return CreatableTopicResult(new.name, topic_id, topic_config_error_code=denied)
    return CreatableTopicResult(
        new.name,
        topic_id,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=tuple(
            CreatableTopicConfigs(each.name, each.value, each.read_only, each.config_source)
            for each in topic_settings(services.topics.config_of(topic))
        ),
    )


async def delete(
    services: Services, context: RequestContext, request: DeleteTopicsRequest, version: int
) -> DeleteTopicsResponse:
    """Deletes each topic for itself."""
    context.knows_throttling = version >= THROTTLING_SINCE_DELETE
    wanted = request.topics
    if version < IDS_SINCE:
        wanted = tuple(DeleteTopicState(name) for name in request.topic_names)
    return await services.run(_delete_all(services, context, wanted))


async def _delete_all(
    services: Services, context: RequestContext, wanted: tuple[DeleteTopicState, ...]
) -> DeleteTopicsResponse:
    results: list[DeletableTopicResult] = []
    twice = repeated((topic.name, topic.topic_id) for topic in wanted)
    for topic in wanted:
        if (topic.name, topic.topic_id) in twice:
            code = ErrorCode.INVALID_REQUEST
            results.append(DeletableTopicResult(topic.name, topic.topic_id, code, _TWICE))
        else:
            results.append(await _delete(services, context, topic))
    return DeleteTopicsResponse(responses=tuple(results))


async def _delete(
    services: Services, context: RequestContext, wanted: DeleteTopicState
) -> DeletableTopicResult:
    name = wanted.name
    if (name is None) == (wanted.topic_id == NO_ID):
        code = ErrorCode.INVALID_REQUEST
        return DeletableTopicResult(name, wanted.topic_id, code, _NAME_OR_ID)
    if name is None:
        found = services.cluster.topic_by_id(context, wanted.topic_id)
        if found is None:
            return DeletableTopicResult(None, wanted.topic_id, KafkaError.UNKNOWN_TOPIC_ID)
        name = found.name
    topic_id = services.cluster.topic_id_of(name)
    try:
        await services.topics.delete(context, name)
    except ApiError as error:
        # An id would tell a client without rights that there is such a topic.
        return DeletableTopicResult(name, wanted.topic_id, kafka_code(error.code), error.message)
    return DeletableTopicResult(name, topic_id)
