"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

import uuid

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
    TopicResult,
)
from millrace_server.broker.broker import Broker
from millrace_server.dialects.native.answer import Answered
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.net.connection import Connection
from millrace_server.refusal import Refused

_NO_ID = uuid.UUID(int=0)


def create(broker: Broker, connection: Connection, request: CreateTopicsRequest) -> Answered:
    """Creates each topic for itself."""
    check_once([t.name for t in request.topics], "topic")

    async def create_all() -> CreateTopicsResponse:
        return CreateTopicsResponse(
            tuple([await _create(broker, t, request.validate_only) for t in request.topics])
        )

    return broker.host.spawn.task(create_all(), name="create topics")


async def _create(broker: Broker, new: NewTopic, validate_only: bool) -> CreatedTopic:
    try:
        topic = await broker.topics.create(
            new.name,
            partitions=new.partitions,
            replication_factor=new.replication_factor,
            configs={c.name: c.value for c in new.configs},
            validate_only=validate_only,
        )
    except Refused as refused:
        return CreatedTopic(new.name, refused.code, refused.sentence, _NO_ID, -1, -1)
    return CreatedTopic(
        new.name,
        ErrorCode.NONE,
        None,
        uuid.UUID(topic.topic_id),
        topic.partitions,
        topic.replication_factor,
    )


def delete(broker: Broker, connection: Connection, request: DeleteTopicsRequest) -> Answered:
    """Deletes each topic for itself."""

    async def delete_all() -> DeleteTopicsResponse:
        return DeleteTopicsResponse(tuple([await _delete(broker, t) for t in request.topics]))

    return broker.host.spawn.task(delete_all(), name="delete topics")


async def _delete(broker: Broker, name: str) -> TopicResult:
    try:
        await broker.topics.delete(name)
    except Refused as refused:
        return TopicResult(name, refused.code, refused.sentence)
    return TopicResult(name, ErrorCode.NONE, None)


def add_partitions(
    broker: Broker, connection: Connection, request: CreatePartitionsRequest
) -> Answered:
    """Widens each topic for itself."""
    check_once([t.name for t in request.topics], "topic")

    async def widen(name: str, partitions: int) -> TopicResult:
        try:
            await broker.topics.add_partitions(
                name, partitions, validate_only=request.validate_only
            )
        except Refused as refused:
            return TopicResult(name, refused.code, refused.sentence)
        return TopicResult(name, ErrorCode.NONE, None)

    async def widen_all() -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            tuple([await widen(t.name, t.partitions) for t in request.topics])
        )

    return broker.host.spawn.task(widen_all(), name="create partitions")
