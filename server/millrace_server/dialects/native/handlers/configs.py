"""DescribeConfigs and AlterConfigs."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.admin import TopicResult
from millrace_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigChanges,
    ConfigEntry,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    TopicConfigs,
)
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered, AnswerPieces
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.loop.fair_scheduler import cut
from millrace_server.net.connection import Connection
from millrace_server.topic_config import TOPIC_CONFIG_KEYS

PIECE_TOPICS = 10
"""Described, or changed as far as that needs no disk, in one go: some 300 us."""


def describe(broker: Broker, connection: Connection, request: DescribeConfigsRequest) -> Answered:
    """Lists every setting of each topic with where its value comes from."""
    return _in_pieces(broker, request)


def _in_pieces(broker: Broker, request: DescribeConfigsRequest) -> AnswerPieces:
    described: list[TopicConfigs] = []
    for names in cut(request.topics, PIECE_TOPICS, str):
        described += (_describe(broker, name) for name in names)
        yield None
    return DescribeConfigsResponse(tuple(described))


def _describe(broker: Broker, name: str) -> TopicConfigs:
    try:
        config = broker.topics.config(name)
    except ApiError as refused:
        return TopicConfigs(name, refused.code, refused.message, ())
    return TopicConfigs(
        name,
        ErrorCode.NONE,
        None,
        tuple(
            ConfigEntry(key.name, config.text(key.name), key.name not in config.own, key.doc)
            for key in TOPIC_CONFIG_KEYS.values()
        ),
    )


def alter(broker: Broker, connection: Connection, request: AlterConfigsRequest) -> Answered:
    """Changes each topic for itself."""
    check_once([t.name for t in request.topics], "topic")

    async def alter_one(change: ConfigChanges) -> TopicResult:
        try:
            await broker.topics.change_config(
                change.name,
                {c.name: c.value for c in change.configs},
                validate_only=request.validate_only,
            )
        except ApiError as refused:
            return TopicResult(change.name, refused.code, refused.message)
        return TopicResult(change.name, ErrorCode.NONE, None)

    async def alter_all() -> AlterConfigsResponse:
        results: list[TopicResult] = []
        for change in request.topics:
            results.append(await alter_one(change))
            if not len(results) % PIECE_TOPICS:
                await broker.turns.turn()
        return AlterConfigsResponse(tuple(results))

    return broker.env.spawn.task(alter_all(), name="alter configs")
