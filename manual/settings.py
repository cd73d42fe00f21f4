"""The reference of settings, from their declarations.

Owns the tables. The settings of a broker come from `broker_settings`, which is also what a broker
tells its clients. A setting of a client has its meaning in the docstring below its field, which is
read from the source.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from manual.markdown import plain, table
from millrace._kafka_settings import NAMES, NOTES
from millrace.config import ClientConfig, ConsumerConfig, ProducerConfig
from millrace_cli.commands.serve import serve
from millrace_server.broker_settings import BrokerSetting, broker_settings
from millrace_server.config import BrokerConfig
from millrace_server.config_sources import ENVIRONMENT_PREFIX
from millrace_server.topic_config import TOPIC_CONFIG_KEYS, ConfigKey

_UNBOUNDED = 2**63 - 1
"""The maximum of a topic setting that has none, and a default that means never."""
_FLAGS = {name: name.replace("_", "-") for name in inspect.signature(serve).parameters}
_FLAGS["text_dialect"] = "text"
"""The flags of `millrace serve`, by the setting."""
_SIZES = {1 << 30: "GiB", 1 << 20: "MiB", 1 << 10: "KiB"}
_TIMES_MS = {86_400_000: "days", 3_600_000: "hours", 60_000: "minutes", 1_000: "seconds"}


def broker_table() -> str:
    """The keys at the top of the TOML file."""
    return _broker_table(each for each in _broker_settings() if "." not in each.name)


def limits_table() -> str:
    """The keys of `[limits]` in the TOML file."""
    return _broker_table(each for each in _broker_settings() if each.name.startswith("limits."))


def _broker_settings() -> Iterator[BrokerSetting]:
    return broker_settings(BrokerConfig())


def _broker_table(settings: Iterable[BrokerSetting]) -> str:
    rows = []
    for each in settings:
        names = [each.name, _variable(each.name)]
        if each.name in _FLAGS:
            names.append(f"--{_FLAGS[each.name]}")
        when = "yes" if each.reloads else "no"
        rows.append((_names(names), _default(each.name, each.value), when, plain(each.doc)))
    return table(("setting", "default", "reloads", "meaning"), rows)


def _variable(name: str) -> str:
    """The environment variable of a broker's setting.

    >>> _variable("topic.retention.ms")
    'MILLRACE_TOPIC__RETENTION_MS'
    """
    text = name.upper().replace(".", "__", 1).replace(".", "_")
    return f"{ENVIRONMENT_PREFIX}{text}"


def topic_table() -> str:
    """The settings of a topic."""
    rows = [
        (
            _names([key.name, _variable(f"topic.{key.name}")]),
            _default(key.name, key.default),
            _allowed(key),
            plain(key.doc),
        )
        for key in TOPIC_CONFIG_KEYS.values()
    ]
    return table(("setting", "default", "values", "meaning"), rows)


def _allowed(key: ConfigKey) -> str:
    if key.words:
        return ", ".join(f"`{word}`" for word in key.words) + (", or both" if key.is_list else "")
    if key.is_share:
        return "0 to 1"
    if key.maximum == _UNBOUNDED:
        return f"{key.minimum} or more"
    return f"{key.minimum} to {key.maximum}"


def client_table() -> str:
    """The settings of every client."""
    return _client_table(ClientConfig)


def producer_table() -> str:
    """The settings that only a producer has."""
    return _client_table(ProducerConfig)


def consumer_table() -> str:
    """The settings that only a consumer has."""
    return _client_table(ConsumerConfig)


def kafka_table() -> str:
    """The settings of Kafka's clients that have another name here, or none."""
    rows = [(f"`{name}`", f"`{ours}`") for name, ours in NAMES.items()]
    rows += [(f"`{name}`", plain(note)) for name, note in NOTES.items()]
    return table(("aiokafka, confluent-kafka", "millrace"), sorted(rows))


def _client_table(config: type[ClientConfig]) -> str:
    hints = get_type_hints(config)
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    rows = [
        (f"`{name}`", _default(name, repr(defaults[name])), _values(hints[name]), plain(doc))
        for name, doc in field_docs(config).items()
    ]
    return table(("setting", "default", "values", "meaning"), rows)


def _values(hint: Any) -> str:
    """What a setting of a type may be: a kind of value, or the words.

    >>> _values(int), _values(bool)
    ('whole number', '`True` or `False`')
    """
    kinds: dict[Any, str] = {
        int: "whole number",
        str: "text",
        bool: "`True` or `False`",
        type(None): "`None`",
        Callable: "function",
    }
    members = list(_members(hint))
    return ", ".join(kinds.get(each, f"`{each!r}`") for each in members)


def _members(hint: Any) -> Iterator[Any]:
    """The types of a union and the words of a literal."""
    if get_origin(hint) is Callable:
        yield Callable
        return
    for each in get_args(hint):
        yield from _members(each)
    if not get_args(hint):
        yield hint


def field_docs(cls: type[Any]) -> Mapping[str, str]:
    """The docstring below each field that a dataclass adds; empty where there is none."""
    (definition,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    name = ""
    for node in definition.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                if not ast.unparse(node.annotation).startswith("ClassVar"):
                    found[name] = ""
            case ast.Expr(value=ast.Constant(value=str(text))) if name in found:
                found[name] = inspect.cleandoc(text)
            case _:
                name = ""
    return found


def _names(names: Iterable[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names)


def _default(name: str, value: str) -> str:
    """A default, and the same in a larger unit where that is a whole number.

    >>> _default("linger_ms", "5"), _default("segment.ms", "604800000")
    ('`5`', '`604800000` (7 days)')
    """
    if not value:
        return "empty"
    if value == str(_UNBOUNDED):
        return f"`{value}` (no limit)"
    units = _SIZES if "bytes" in name else _TIMES_MS if name.endswith("ms") else {}
    if value.isdigit() and int(value):
        for size, unit in units.items():
            count, rest = divmod(int(value), size)
            if not rest:
                return f"`{value}` ({count} {unit.removesuffix('s') if count == 1 else unit})"
    return f"`{value}`"
