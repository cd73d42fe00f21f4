"""The settings of a broker that are in force, as an operator sees them.

Owns their names as one list: those of `BrokerConfig`, `limits.*`, and `topic.*` for the defaults of
topics. Refuses to know how they are read and checked (`config`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from millrace_server.config import BrokerConfig
from millrace_server.limits import Limits
from millrace_server.setting import doc_of, is_secret, reloads
from millrace_server.topic_config import TOPIC_CONFIG_KEYS, TopicConfig

DEFAULT = "default"
ARGUMENT = "argument"
"""The source of what a program passed that embeds the broker."""
HIDDEN = "(hidden)"
"""Stands for the value of a secret that is set."""


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One setting as text. `source`: flag, environment, file, argument or default."""

    name: str
    value: str
    source: str
    doc: str
    is_secret: bool = False
    reloads: bool = False
    """Whether a running broker takes over another value (`config_reload`)."""


def broker_settings(config: BrokerConfig) -> Iterator[BrokerSetting]:
    """Every setting: those of the broker, its limits, and what it gives to topics."""
    defaults = BrokerConfig()
    for field in _documented(BrokerConfig):
        value, default = getattr(config, field.name), getattr(defaults, field.name)
        found = _setting(config, field.name, value, default, doc_of(field), reloads(field))
        if is_secret(field):
            found = replace(found, value=HIDDEN if value else "", is_secret=True)
        yield found
    for field in _documented(Limits):
        value, default = getattr(config.limits, field.name), getattr(defaults.limits, field.name)
        name = f"limits.{field.name}"
        yield _setting(config, name, value, default, doc_of(field), reloads(field))
    for_topics = TopicConfig({}, config.topic)
    for name, key in TOPIC_CONFIG_KEYS.items():
        yield _setting(config, f"topic.{name}", for_topics.text(name), key.default, key.doc)


def _documented(cls: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if doc_of(field)]


def _setting(
    config: BrokerConfig, name: str, value: Any, default: Any, doc: str, reloads: bool = False
) -> BrokerSetting:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    source = config.sources.get(name, DEFAULT if value == default else ARGUMENT)
    return BrokerSetting(name, text, source, doc, reloads=reloads)
