"""IncrementalAlterConfigs (44): changes of single settings (KIP-339)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.configs import AlterConfigsResourceResponse
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, INT8, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class AlterableConfig(Message):
    """A change of a setting."""

    name: str = wire(STRING, "name of the setting")
    config_operation: int = wire(INT8, "0: set, 1: delete, 2: append, 3: subtract")
    value: str | None = wire(NULLABLE_STRING, "the value, or the words of a list")


@message
class AlterConfigsResource(Message):
    """Changes of a resource."""

    resource_type: int = wire(INT8, "2: topic, 4: broker, 32: group")
    resource_name: str = wire(STRING, "its name")
    configs: tuple[AlterableConfig, ...] = wire(array_of(AlterableConfig), "the changes")


@message
class IncrementalAlterConfigsRequest(KafkaRequest):
    """Changes settings; those that are not named stay."""

    flexible_since: ClassVar[int | None] = 1

    resources: tuple[AlterConfigsResource, ...] = wire(
        array_of(AlterConfigsResource), "what to change"
    )
    validate_only: bool = wire(BOOLEAN, "says only whether they could be", default=False)


@message
class IncrementalAlterConfigsResponse(Message):
    """Each resource for itself."""

    flexible_since: ClassVar[int | None] = 1

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(
        array_of(AlterConfigsResourceResponse), "the resources", default=()
    )
