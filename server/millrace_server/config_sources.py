"""Reads a broker's configuration: a TOML file, the environment and flags, in rising order.

    # millrace.toml
    data = "/var/lib/millrace"
    listen = "127.0.0.1:9092"

    [topic]                       # defaults of every topic, by Kafka's names
    "retention.ms" = 86400000

    [limits]
    connections_max = 20000

The environment says the same with `MILLRACE_` before the upper-case name and `__` for a table:
`MILLRACE_LISTEN`, `MILLRACE_LIMITS__CONNECTIONS_MAX`, `MILLRACE_TOPIC__RETENTION_MS`. Every
value is checked before anything is opened; a mistake is a `ConfigError` with key and reason.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from typing import Any

from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig, ConfigError
from millrace_server.config_checks import check
from millrace_server.limits import Limits
from millrace_server.setting import doc_of
from millrace_server.topic_config import TOPIC_CONFIG_KEYS, config_key

ENVIRONMENT_PREFIX = "MILLRACE_"
NUMBER_MAX = 2**53
"""No setting is a larger number: all of them are exact as a float, in which the loop has time."""
_TABLES = ("topic", "limits")
_ENVIRONMENT, _FLAG = "environment", "flag"
# Read by the clients, from the same environment: not the broker's to refuse.
_CLIENT_VARIABLES = frozenset(
    {
        "MILLRACE_SERVERS",
        "MILLRACE_USERNAME",
        "MILLRACE_PASSWORD",
        "MILLRACE_PASSWORD_FILE",
        "MILLRACE_NEW_PASSWORD",
        "MILLRACE_SASL_MECHANISM",
        "MILLRACE_TOKEN",
    }
)


def load(
    *, toml: str | None, toml_name: str, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> BrokerConfig:
    """The configuration from the text of a TOML file, the environment and the flags given.

    Flags whose value is None were not given. Raises `ConfigError`.
    """
    config = BrokerConfig()
    if toml is not None:
        try:
            table = tomllib.loads(toml)
            _check_integers(table)
        except RecursionError:
            raise ConfigError("TOML", toml_name, "is nested too deeply") from None
        except ValueError as error:
            # Besides `TOMLDecodeError`, what Python says of a number with thousands of digits.
            raise ConfigError("TOML", toml_name, str(error)) from None
        config = _with_table(config, table, toml_name)
    config = _with_table(config, _environment_table(environment), _ENVIRONMENT)
    given = {name: value for name, value in flags.items() if value is not None}
    config = _with_table(config, given, _FLAG)
    check(config)
    return config


def _check_integers(value: Any) -> None:
    """TOML has integers of 64 bits; larger ones Python may not even be able to show."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("an integer does not fit 64 bits")
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_integers(inner)


def _environment_table(environment: Mapping[str, str]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _CLIENT_VARIABLES:
            continue
        name, _, inner = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        if name in _TABLES and inner:
            key = inner.replace("_", ".") if name == "topic" else inner
            table.setdefault(name, {})[key] = value
        elif name in _TABLES:
            raise ConfigError(
                variable, _ENVIRONMENT, f"is a table; set {variable}__KEY for one of its keys"
            )
        elif inner:
            raise ConfigError(variable, _ENVIRONMENT, f"{name} is not a table of keys")
        else:
            table[name] = value
    return table


def _with_table(config: BrokerConfig, table: Mapping[str, Any], source: str) -> BrokerConfig:
    changes: dict[str, Any] = {}
    given: list[str] = []
    known = {f.name: f for f in dataclasses.fields(BrokerConfig) if doc_of(f) or f.name in _TABLES}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(name, source, _unknown(name, known))
        if name == "topic":
            changes[name] = {**config.topic, **_topic_defaults(value, source)}
        elif name == "limits":
            changes[name] = _with_limits(config.limits, value, source)
        else:
            changes[name] = _typed(name, getattr(config, name), value, source)
        given += [f"{name}.{key}" for key in value] if name in _TABLES else [name]
    where = source if source in (_ENVIRONMENT, _FLAG) else "file"
    sources = {**config.sources, **dict.fromkeys(given, where)}
    return dataclasses.replace(config, **changes, sources=sources)


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; the keys are {', '.join(known)}"
    return f"there is no such key{hint}"


def _typed(name: str, default: Any, value: Any, source: str) -> Any:
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise ConfigError(name, source, f"{value!r} is neither true nor false")
    if isinstance(default, int):
        try:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ValueError
            number = int(value)
        except ValueError:
            raise ConfigError(name, source, f"{value!r} is not a whole number") from None
        if number > NUMBER_MAX:
            raise ConfigError(name, source, f"{value} is more than {NUMBER_MAX}")
        return number
    if not isinstance(value, str):
        # Not shown: it may be a password.
        raise ConfigError(name, source, "is not text; put it between quotes")
    return value


def _topic_defaults(table: Any, source: str) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise ConfigError("topic", source, "is a table of topic settings")
    checked = {}
    for name, value in table.items():
        key = f"topic.{name}"
        if isinstance(value, Mapping):
            raise ConfigError(key, source, f'quote the name: "{name}.…" = …')
        try:
            if name not in TOPIC_CONFIG_KEYS and (
                near := difflib.get_close_matches(name, TOPIC_CONFIG_KEYS, n=1)
            ):
                raise ConfigError(key, source, f"there is no such key; did you mean {near[0]}?")
            checked[name] = config_key(name).check(str(value))
        except ApiError as refused:
            raise ConfigError(key, source, refused.message) from None
    return checked


def _with_limits(limits: Limits, table: Any, source: str) -> Limits:
    if not isinstance(table, Mapping):
        raise ConfigError("limits", source, "is a table of limits")
    known = {f.name: f for f in dataclasses.fields(Limits)}
    changes = {}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"limits.{name}", source, _unknown(name, known))
        changes[name] = _typed(f"limits.{name}", getattr(limits, name), value, source)
        if changes[name] < 1:
            raise ConfigError(f"limits.{name}", source, f"{value} is less than 1")
    try:
        return dataclasses.replace(limits, **changes)
    except ValueError as error:
        raise ConfigError("limits", source, str(error)) from None
