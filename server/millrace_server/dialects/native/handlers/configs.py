"""DescribeConfigs and AlterConfigs."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.admin import TopicResult
from millrace_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    BrokerConfigs,
    ConfigChanges,
    ConfigEntry,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    TopicConfigs,
)
from millrace_server.api_error import ApiError
from millrace_server.broker_settings import DEFAULT
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.loop.fair_scheduler import chunks
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.topic_config import TOPIC_CONFIG_KEYS

CHUNK_TOPICS = 10
"""Described, or changed as far as that needs no disk, in one chunk: some 300 us."""


async def describe(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Lists every setting of each topic and broker with where its value comes from."""
    check_once(request.brokers, "broker")
    described: list[TopicConfigs] = []
    for names in chunks(request.topics, CHUNK_TOPICS, str):
        if described:
            await services.scheduler.yield_()
        described += (_describe(services, context, name) for name in names)
    brokers: list[BrokerConfigs] = []
    for node_id in request.brokers:
        brokers.append(_describe_broker(services, context, node_id))
        await services.scheduler.yield_()
    return DescribeConfigsResponse(tuple(described), tuple(brokers))


def _describe(services: Services, context: RequestContext, name: str) -> TopicConfigs:
    try:
        config = services.topics.config(context, name)
    except ApiError as refused:
        return TopicConfigs(name, refused.code, refused.message, ())
    return TopicConfigs(
        name,
        ErrorCode.NONE,
        None,
        tuple(
            ConfigEntry(
                key.name,
                config.text(key.name),
                key.name not in config.own,
                config.source(key.name),
                False,
                key.doc,
            )
            for key in TOPIC_CONFIG_KEYS.values()
        ),
    )


def _describe_broker(services: Services, context: RequestContext, node_id: int) -> BrokerConfigs:
    try:
        settings = services.cluster.settings(context, node_id)
    except ApiError as refused:
        return BrokerConfigs(node_id, refused.code, refused.message, ())
    entries = (
        ConfigEntry(each.name, each.value, each.source == DEFAULT, each.source, True, each.doc)
        for each in settings
    )
    return BrokerConfigs(services.cluster.node_id, ErrorCode.NONE, None, tuple(entries))


async def alter(
    services: Services, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Changes each topic for itself."""
    check_once([t.name for t in request.topics], "topic")
    return AlterConfigsResponse(await services.run(_alter_each(services, context, request)))


async def _alter_each(
    services: Services, context: RequestContext, request: AlterConfigsRequest
) -> tuple[TopicResult, ...]:
    results: list[TopicResult] = []
    for change in request.topics:
        results.append(await _alter(services, context, change, validate_only=request.validate_only))
        if not len(results) % CHUNK_TOPICS:
            await services.scheduler.yield_()
    return tuple(results)


async def _alter(
    services: Services, context: RequestContext, change: ConfigChanges, *, validate_only: bool
) -> TopicResult:
    try:
        await services.topics.change_config(
            context,
            change.name,
            {c.name: c.value for c in change.configs},
            validate_only=validate_only,
        )
    except ApiError as error:
        return TopicResult(change.name, error.code, error.message)
    return TopicResult(change.name, ErrorCode.NONE, None)
