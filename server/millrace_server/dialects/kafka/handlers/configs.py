"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: settings of topics and brokers.

The settings of topics are Kafka's. Those of a broker have names of their own where Kafka has none,
and only a restart changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import configs as messages
from millrace_protocol.kafka import incremental_configs as incremental
from millrace_server.api_error import ApiError
from millrace_server.broker_settings import DEFAULT, BrokerSetting
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.dialects.kafka.handlers.repeated import repeated
from millrace_server.dialects.kafka.handlers.topic_names import check_name
from millrace_server.dialects.kafka.setting_names import kafka_name
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.topic_config import TOPIC_CONFIG_KEYS, ConfigKey, TopicConfig, config_key

_INT32_MAX = (1 << 31) - 1


class ResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from (KIP-226)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class ValueType(IntEnum):
    """The type of a value (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Operation(IntEnum):
    """What an incremental change does with a value (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_SOURCES = {"topic": Source.TOPIC, "broker": Source.STATIC_BROKER, "default": Source.DEFAULT}
_OF_BROKERS = (
    "A broker's settings are in its file; change it there, then send the broker SIGHUP, or start "
    "it again for a setting that cannot be reloaded"
)


# Describing


async def describe(
    services: Services,
    context: RequestContext,
    request: messages.DescribeConfigsRequest,
    version: int,
) -> messages.DescribeConfigsResponse:
    """Each resource for itself, unless one is of a type that does not exist."""
    unknown = {each.resource_type for each in request.resources} - {*ResourceType}
    refused = _unknown_type(min(unknown)) if unknown else None
    results: list[messages.DescribeConfigsResult] = []
    for resource in request.resources:
        results.append(_describe(services, context, resource, request, refused))
        await services.scheduler.yield_()
    return messages.DescribeConfigsResponse(results=tuple(results))


def _describe(
    services: Services,
    context: RequestContext,
    resource: messages.DescribeConfigsResource,
    request: messages.DescribeConfigsRequest,
    refused: ApiError | None,
) -> messages.DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        if refused is not None:
            raise refused
        if kind == ResourceType.TOPIC:
            check_name(name)
            found = topic_settings(services.topics.config(context, name))
        elif kind == ResourceType.BROKER:
            found = [] if not name else [*map(_of_broker, _settings(services, context, name))]
        else:
            found = []
    except ApiError as error:
        code = kafka_code(error.code)
        return messages.DescribeConfigsResult(code, error.message, kind, name)
    keys = resource.configuration_keys
    chosen = [each for each in found if not keys or each.name in keys]
    for each in chosen:
        if not request.include_synonyms:
            each.synonyms = ()
        if not request.include_documentation:
            each.documentation = None
    return messages.DescribeConfigsResult(ErrorCode.NONE, None, kind, name, tuple(chosen))


def topic_settings(config: TopicConfig) -> list[messages.DescribeConfigsResourceResult]:
    """Every setting of a topic with where its value comes from."""
    return [
        messages.DescribeConfigsResourceResult(
            key.name,
            config.text(key.name),
            False,
            _SOURCES[config.source(key.name)],
            False,
            _synonyms(config, key),
            _value_type(key),
            key.doc,
        )
        for key in TOPIC_CONFIG_KEYS.values()
    ]


def _synonyms(config: TopicConfig, key: ConfigKey) -> tuple[messages.DescribeConfigsSynonym, ...]:
    places = (
        (key.name, config.own.get(key.name), Source.TOPIC),
        (kafka_name(f"topic.{key.name}"), config.defaults.get(key.name), Source.STATIC_BROKER),
        (key.name, key.default, Source.DEFAULT),
    )
    return tuple(messages.DescribeConfigsSynonym(*place) for place in places if place[1])


def _value_type(key: ConfigKey) -> ValueType:
    if key.is_list:
        return ValueType.LIST
    if key.words:
        return ValueType.BOOLEAN if {*key.words} == {"false", "true"} else ValueType.STRING
    if key.is_share:
        return ValueType.DOUBLE
    return ValueType.INT if key.maximum == _INT32_MAX else ValueType.LONG


def _settings(services: Services, context: RequestContext, name: str) -> Sequence[BrokerSetting]:
    try:
        node_id = int(name)
    except ValueError:
        message = f"The name of a broker is its id, a number; it is {name!r}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message) from None
    return services.cluster.settings(context, node_id)


def _of_broker(setting: BrokerSetting) -> messages.DescribeConfigsResourceResult:
    source = Source.DEFAULT if setting.source == DEFAULT else Source.STATIC_BROKER
    name = kafka_name(setting.name)
    value = None if setting.is_secret else setting.value
    synonym = messages.DescribeConfigsSynonym(name, value, source)
    return messages.DescribeConfigsResourceResult(
        name,
        value,
        True,
        source,
        setting.is_secret,
        (synonym,),
        ValueType.STRING,
        setting.doc,
    )


def _unknown_type(kind: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"There are no settings of resource type {kind}; the types are "
        f"{', '.join(f'{each.value} ({each.name.lower()})' for each in ResourceType)}",
    )


# Changing


async def alter(
    services: Services, context: RequestContext, request: messages.AlterConfigsRequest, version: int
) -> messages.AlterConfigsResponse:
    """Each resource for itself: a setting that is not named goes back to its default."""

    def changes_of(
        config: TopicConfig, resource: messages.AlterConfigsResource
    ) -> dict[str, str | None]:
        return dict.fromkeys(config.own) | {each.name: each.value for each in resource.configs}

    def nulls_of(resource: messages.AlterConfigsResource) -> list[str]:
        return [each.name for each in resource.configs if each.value is None]

    work = _alter_each(
        services, context, request.resources, nulls_of, changes_of, request.validate_only
    )
    return messages.AlterConfigsResponse(responses=await services.run(work))


async def alter_incrementally(
    services: Services,
    context: RequestContext,
    request: incremental.IncrementalAlterConfigsRequest,
    version: int,
) -> incremental.IncrementalAlterConfigsResponse:
    """Each resource for itself: a setting that is not named stays."""

    def changes_of(
        config: TopicConfig, resource: incremental.AlterConfigsResource
    ) -> dict[str, str | None]:
        return {
            each.name: _new_value(config, each)
            for each in resource.configs
            # What no topic has is deleted.
            if each.config_operation != Operation.DELETE or each.name in TOPIC_CONFIG_KEYS
        }

    def nulls_of(resource: incremental.AlterConfigsResource) -> list[str]:
        changed = (each for each in resource.configs if each.config_operation != Operation.DELETE)
        return [each.name for each in changed if each.value is None]

    work = _alter_each(
        services, context, request.resources, nulls_of, changes_of, request.validate_only
    )
    return incremental.IncrementalAlterConfigsResponse(responses=await services.run(work))


R = TypeVar("R", messages.AlterConfigsResource, incremental.AlterConfigsResource)


async def _alter_each(
    services: Services,
    context: RequestContext,
    resources: Sequence[R],
    nulls_of: Callable[[R], Sequence[str]],
    changes_of: Callable[[TopicConfig, R], Mapping[str, str | None]],
    validate_only: bool,
) -> tuple[messages.AlterConfigsResourceResponse, ...]:
    named = [(each.resource_type, each.resource_name) for each in resources]
    twice = repeated(named)
    results: list[messages.AlterConfigsResourceResponse] = []
    for (kind, name), resource in zip(named, resources, strict=True):
        code, message = int(ErrorCode.NONE), None
        try:
            if (kind, name) in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The resource is named more than once")
            _check_changeable(kind, name)
            config = services.topics.own_config(context, name)
            _check_settings([each.name for each in resource.configs], nulls_of(resource))
            changes = changes_of(config, resource)
            check_name(name)
            config.changed({key: value for key, value in changes.items() if value is not None})
            await services.topics.change_config(context, name, changes, validate_only=validate_only)
        except ApiError as error:
            code, message = kafka_code(error.code), error.message
        results.append(messages.AlterConfigsResourceResponse(code, message, kind, name))
        await services.scheduler.yield_()
    return tuple(results)


def _check_changeable(kind: int, name: str) -> None:
    if kind == ResourceType.BROKER:
        raise ApiError(ErrorCode.INVALID_REQUEST, _OF_BROKERS)
    if kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Groups and client metrics have no settings")
    if kind != ResourceType.TOPIC:
        raise _unknown_type(kind)
    if not name:
        message = "The topic has no name; settings for all topics stand in the broker's file"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _check_settings(names: Sequence[str], nulls: Sequence[str]) -> None:
    if nulls:
        message = (
            f"{nulls[0]} has no value; to delete a setting, send IncrementalAlterConfigs with the "
            f"operation {Operation.DELETE:d}"
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    twice = repeated(names)
    if twice:
        message = f"Setting {min(twice)!r} is named more than once"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _new_value(config: TopicConfig, change: incremental.AlterableConfig) -> str | None:
    """The value of the topic's own after a change; None: the default."""
    operation = change.config_operation
    if operation == Operation.DELETE:
        return None
    if operation == Operation.SET or change.value is None:  # null was refused
        return change.value
    if operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"There is no operation {operation}")
    key = config_key(change.name)
    if not key.is_list:
        message = f"{key.name} is no list, to which words can be added, or from which removed"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    words = config.words(key.name)
    named = [word.strip() for word in change.value.split(",")]
    if operation == Operation.APPEND:
        return ",".join(dict.fromkeys([*words, *named]))
    return ",".join(word for word in words if word not in named)
