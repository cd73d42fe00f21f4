"""DescribeConfigs and AlterConfigs: the settings of topics and brokers."""

from __future__ import annotations

from millrace_protocol.messages.admin import TopicConfig, TopicResult
from millrace_protocol.primitives import BOOLEAN, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class DescribeConfigsRequest(Request):
    """Asks for the settings of topics and brokers."""

    topics: tuple[str, ...] = wire(array_of(STRING), "topic names")
    brokers: tuple[int, ...] = wire(
        array_of(INT32), "node ids, each once; -1 for the broker that is asked", default=()
    )


@message
class ConfigEntry(Message):
    """One setting in force."""

    name: str = wire(STRING, "configuration key")
    value: str = wire(STRING, "the value in force, as text")
    is_default: bool = wire(BOOLEAN, "whether the topic or the broker itself does not set it")
    source: str = wire(STRING, "where the value comes from, W-4.10.1")
    is_read_only: bool = wire(BOOLEAN, "whether AlterConfigs cannot change it")
    doc: str = wire(STRING, "meaning and unit, for people")


@message
class TopicConfigs(Message):
    """All settings of one topic."""

    name: str = wire(STRING, "topic name")
    error_code: int = wire(INT16, "error of this topic (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    configs: tuple[ConfigEntry, ...] = wire(array_of(ConfigEntry), "every setting, by name")


@message
class BrokerConfigs(Message):
    """All settings of one broker."""

    node_id: int = wire(INT32, "the broker's id in the metadata")
    error_code: int = wire(INT16, "error of this broker (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    configs: tuple[ConfigEntry, ...] = wire(array_of(ConfigEntry), "every setting")


@message
class DescribeConfigsResponse(Message):
    """One result per topic and per broker, in the request's order."""

    topics: tuple[TopicConfigs, ...] = wire(array_of(TopicConfigs), "the results of topics")
    brokers: tuple[BrokerConfigs, ...] = wire(array_of(BrokerConfigs), "the results of brokers")


@message
class ConfigChanges(Message):
    """Settings of one topic to change; those not named stay."""

    name: str = wire(STRING, "topic name")
    configs: tuple[TopicConfig, ...] = wire(
        array_of(TopicConfig), "new values; null goes back to the default"
    )


@message
class AlterConfigsRequest(Request):
    """Changes settings; those of one topic all or none."""

    topics: tuple[ConfigChanges, ...] = wire(array_of(ConfigChanges), "a name may stand once")
    validate_only: bool = wire(BOOLEAN, "check only: the response is the same, and nothing changes")


@message
class AlterConfigsResponse(Message):
    """One result per topic, in the request's order."""

    topics: tuple[TopicResult, ...] = wire(array_of(TopicResult), "the results")
