"""DescribeConfigs (32) and AlterConfigs (33): settings of topics and brokers."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, INT8, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class DescribeConfigsResource(Message):
    """What has settings: a topic, a broker, a group."""

    resource_type: int = wire(INT8, "2: topic, 4: broker, 8: broker's logger, 32: group")
    resource_name: str = wire(STRING, "its name, or the id of a broker")
    configuration_keys: tuple[str, ...] | None = wire(
        array_of(STRING, nullable=True), "names of settings; null: all"
    )


@message
class DescribeConfigsRequest(KafkaRequest):
    """Asks for settings."""

    flexible_since: ClassVar[int | None] = 4

    resources: tuple[DescribeConfigsResource, ...] = wire(
        array_of(DescribeConfigsResource), "what to describe"
    )
    include_synonyms: bool = wire(BOOLEAN, "tell where values may come from", default=False)
    include_documentation: bool = wire(BOOLEAN, "tell what they mean", since=3, default=False)


@message
class DescribeConfigsSynonym(Message):
    """A place where the value of a setting may come from."""

    name: str = wire(STRING, "name of the setting there")
    value: str | None = wire(NULLABLE_STRING, "the value there")
    source: int = wire(INT8, "the place")


@message
class DescribeConfigsResourceResult(Message):
    """A setting."""

    name: str = wire(STRING, "name of the setting")
    value: str | None = wire(NULLABLE_STRING, "the value in force")
    read_only: bool = wire(BOOLEAN, "whether it cannot be changed")
    config_source: int = wire(INT8, "where the value comes from; -1: unknown", default=-1)
    is_sensitive: bool = wire(BOOLEAN, "whether it is secret", default=False)
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(
        array_of(DescribeConfigsSynonym), "where it may come from, the first first", default=()
    )
    config_type: int = wire(INT8, "type of the value; 0: unknown", since=3, default=0)
    documentation: str | None = wire(NULLABLE_STRING, "its meaning", since=3, default=None)


@message
class DescribeConfigsResult(Message):
    """The settings of a resource, or why they are not known."""

    error_code: int = wire(INT16, "error of the resource")
    error_message: str | None = wire(NULLABLE_STRING, "the reason")
    resource_type: int = wire(INT8, "as in the request")
    resource_name: str = wire(STRING, "as in the request")
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(
        array_of(DescribeConfigsResourceResult), "the settings", default=()
    )


@message
class DescribeConfigsResponse(Message):
    """Each resource for itself."""

    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    results: tuple[DescribeConfigsResult, ...] = wire(
        array_of(DescribeConfigsResult), "the resources", default=()
    )


@message
class AlterableConfig(Message):
    """A setting that is to have a value."""

    name: str = wire(STRING, "name of the setting")
    value: str | None = wire(NULLABLE_STRING, "its value; null: the default")


@message
class AlterConfigsResource(Message):
    """All settings that a resource is to have of its own."""

    resource_type: int = wire(INT8, "2: topic, 4: broker")
    resource_name: str = wire(STRING, "its name")
    configs: tuple[AlterableConfig, ...] = wire(
        array_of(AlterableConfig), "the settings; others go back to their defaults"
    )


@message
class AlterConfigsRequest(KafkaRequest):
    """Replaces settings."""

    flexible_since: ClassVar[int | None] = 2

    resources: tuple[AlterConfigsResource, ...] = wire(
        array_of(AlterConfigsResource), "what to change"
    )
    validate_only: bool = wire(BOOLEAN, "says only whether they could be", default=False)


@message
class AlterConfigsResourceResponse(Message):
    """A resource that was changed, or not."""

    error_code: int = wire(INT16, "error of the resource")
    error_message: str | None = wire(NULLABLE_STRING, "the reason")
    resource_type: int = wire(INT8, "as in the request")
    resource_name: str = wire(STRING, "as in the request")


@message
class AlterConfigsResponse(Message):
    """Each resource for itself."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(
        array_of(AlterConfigsResourceResponse), "the resources", default=()
    )
