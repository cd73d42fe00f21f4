"""DescribeConfigs and AlterConfigs: the settings of topics."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.messages.admin import TopicConfig, TopicResult
from millrace_protocol.primitives import BOOLEAN, INT16, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, wire


@dataclass(slots=True)
class DescribeConfigsRequest(Request):
    """Asks for the settings of topics."""

    topics: tuple[str, ...] = wire(array_of(STRING), "topic names")


@dataclass(slots=True)
class ConfigEntry(Message):
    """One setting in force."""

    name: str = wire(STRING, "configuration key")
    value: str = wire(STRING, "the value in force, as text")
    is_default: bool = wire(BOOLEAN, "whether the topic itself does not set it")
    doc: str = wire(STRING, "meaning and unit, for people")


@dataclass(slots=True)
class TopicConfigs(Message):
    """All settings of one topic."""

    name: str = wire(STRING, "topic name")
    error_code: int = wire(INT16, "error of this topic (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    configs: tuple[ConfigEntry, ...] = wire(array_of(ConfigEntry), "every setting, by name")


@dataclass(slots=True)
class DescribeConfigsResponse(Message):
    """One result per topic, in the request's order."""

    topics: tuple[TopicConfigs, ...] = wire(array_of(TopicConfigs), "the results")


@dataclass(slots=True)
class ConfigChanges(Message):
    """Settings of one topic to change; those not named stay."""

    name: str = wire(STRING, "topic name")
    configs: tuple[TopicConfig, ...] = wire(
        array_of(TopicConfig), "new values; null goes back to the default"
    )


@dataclass(slots=True)
class AlterConfigsRequest(Request):
    """Changes settings; those of one topic all or none."""

    topics: tuple[ConfigChanges, ...] = wire(array_of(ConfigChanges), "a name may stand once")
    validate_only: bool = wire(BOOLEAN, "check only: the response is the same, and nothing changes")


@dataclass(slots=True)
class AlterConfigsResponse(Message):
    """One result per topic, in the request's order."""

    topics: tuple[TopicResult, ...] = wire(array_of(TopicResult), "the results")
