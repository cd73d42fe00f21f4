"""OffsetCommit and OffsetFetch: how far a group has come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import group_offsets as messages
from millrace_protocol.kafka.metadata import NO_ID
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import KafkaError, coordinator_code, kafka_code
from millrace_server.dialects.kafka.handlers.topic_names import name_of
from millrace_server.group import requests
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

IDS_SINCE = 10
SEVERAL_GROUPS_SINCE = 8
ABSENT_GROUP_SINCE = 9
GROUP_ERRORS_SINCE = 2
"""Before, the error of a group stands at each of its partitions."""
NO_OFFSET = -1


async def commit(
    services: Services, context: RequestContext, request: messages.OffsetCommitRequest, version: int
) -> messages.OffsetCommitResponse:
    """Answers when the offsets are durable."""
    is_by_id = version >= IDS_SINCE
    names = [
        name_of(services, context, t.name, t.topic_id, is_by_id=is_by_id) for t in request.topics
    ]
    asked = requests.OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        takes_negative=True,
        offsets=tuple(
            requests.OffsetToCommit(
                name,
                p.partition_index,
                p.committed_offset,
                p.committed_leader_epoch,
                p.committed_metadata or "",
            )
            for name, topic in zip(names, request.topics, strict=True)
            if name is not None
            for p in topic.partitions
        ),
    )
    try:
        results = iter([_code(each.error) for each in await services.groups.commit(context, asked)])
    except ApiError as refused:
        error = _without_a_group(services, context, request.group_id, refused, version)
        results = iter([_refused(services, context, each, error) for each in asked.offsets])
    return messages.OffsetCommitResponse(
        topics=tuple(
            messages.OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                tuple(
                    messages.OffsetCommitResponsePartition(
                        p.partition_index,
                        KafkaError.UNKNOWN_TOPIC_ID if name is None else next(results),
                    )
                    for p in topic.partitions
                ),
            )
            for name, topic in zip(names, request.topics, strict=True)
        )
    )


def _without_a_group(
    services: Services, context: RequestContext, group: str, error: ApiError, version: int
) -> ApiError:
    """The error of a commit in a generation: a group that is not there has a code of its own."""
    if error.code is not ErrorCode.ILLEGAL_GENERATION or version < ABSENT_GROUP_SINCE:
        return error
    try:
        services.groups.describe(context, group)
    except ApiError as absent:
        return absent if absent.code is ErrorCode.GROUP_ID_NOT_FOUND else error
    return error


def _refused(
    services: Services, context: RequestContext, offset: requests.OffsetToCommit, error: ApiError
) -> int:
    """The code of an offset in a refused request: that of its partition comes before."""
    if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return kafka_code(error.code)
    unknown = services.cluster.unknown_partition(context, offset.topic, offset.partition)
    return coordinator_code(error) if unknown is None else kafka_code(unknown.code)


def fetch(
    services: Services, context: RequestContext, request: messages.OffsetFetchRequest, version: int
) -> messages.OffsetFetchResponse:
    """Answers with the durable offsets; before version 8 of one group."""
    if version >= SEVERAL_GROUPS_SINCE:
        groups = tuple(_group(services, context, group, version) for group in request.groups)
        return messages.OffsetFetchResponse(groups=groups)
    topics = request.topics
    found = _group(
        services,
        context,
        messages.OffsetFetchRequestGroup(
            request.group_id,
            topics=None
            if topics is None
            else tuple(
                messages.OffsetFetchRequestTopics(t.name, NO_ID, t.partition_indexes)
                for t in topics
            ),
        ),
        version,
    )
    if found.error_code and version < GROUP_ERRORS_SINCE:
        found.topics = tuple(
            messages.OffsetFetchResponseTopics(
                t.name, NO_ID, tuple(_failed(n, found.error_code) for n in t.partition_indexes)
            )
            for t in topics or ()
        )
    return messages.OffsetFetchResponse(
        topics=tuple(messages.OffsetFetchResponseTopic(t.name, t.partitions) for t in found.topics),
        error_code=found.error_code,
    )


def _group(
    services: Services,
    context: RequestContext,
    group: messages.OffsetFetchRequestGroup,
    version: int,
) -> messages.OffsetFetchResponseGroup:
    try:
        if group.topics is None:
            topics = _all(services, context, group.group_id)
        else:
            topics = _named(services, context, group.group_id, group.topics, version)
    except ApiError as error:
        return messages.OffsetFetchResponseGroup(group.group_id, error_code=coordinator_code(error))
    return messages.OffsetFetchResponseGroup(group.group_id, topics)


def _all(
    services: Services, context: RequestContext, group_id: str
) -> tuple[messages.OffsetFetchResponseTopics, ...]:
    found = services.groups.fetch_offsets(context, group_id, None)
    topics: list[messages.OffsetFetchResponseTopics] = []
    for name, offsets in groupby(found, key=lambda each: each.topic):
        topic_id = services.cluster.topic_id_of(name)
        topics.append(
            messages.OffsetFetchResponseTopics(name, topic_id, tuple(map(_fetched, offsets)))
        )
    return tuple(topics)


def _named(
    services: Services,
    context: RequestContext,
    group_id: str,
    topics: Sequence[messages.OffsetFetchRequestTopics],
    version: int,
) -> tuple[messages.OffsetFetchResponseTopics, ...]:
    is_by_id = version >= IDS_SINCE
    names = [name_of(services, context, t.name, t.topic_id, is_by_id=is_by_id) for t in topics]
    wanted = [
        requests.TopicPartition(name, number)
        for name, topic in zip(names, topics, strict=True)
        if name is not None
        for number in topic.partition_indexes
    ]
    found = iter(services.groups.fetch_offsets(context, group_id, wanted))
    return tuple(
        messages.OffsetFetchResponseTopics(
            topic.name,
            topic.topic_id,
            tuple(
                _failed(number, KafkaError.UNKNOWN_TOPIC_ID)
                if name is None
                else _fetched(next(found))
                for number in topic.partition_indexes
            ),
        )
        for name, topic in zip(names, topics, strict=True)
    )


def _fetched(found: requests.FetchedOffset) -> messages.OffsetFetchResponsePartition:
    committed = found.committed
    if committed is None:
        code = _code(found.error)
        return messages.OffsetFetchResponsePartition(found.partition, NO_OFFSET, error_code=code)
    return messages.OffsetFetchResponsePartition(
        found.partition, committed.offset, committed.leader_epoch, committed.metadata
    )


def _failed(number: int, code: int) -> messages.OffsetFetchResponsePartition:
    return messages.OffsetFetchResponsePartition(number, NO_OFFSET, error_code=code)


def _code(error: ApiError | None) -> int:
    return int(ErrorCode.NONE) if error is None else coordinator_code(error)
