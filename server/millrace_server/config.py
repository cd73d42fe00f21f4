"""The broker's configuration: from a TOML file, the environment and flags, in rising order.

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
import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace_server.api_error import ApiError
from millrace_server.group_config import GroupConfig
from millrace_server.limits import Limits
from millrace_server.setting import doc_of, setting
from millrace_server.topic_config import TOPIC_CONFIG_KEYS, TopicConfig, config_key

ENVIRONMENT_PREFIX = "MILLRACE_"
NUMBER_MAX = 2**53
"""No setting is a larger number: all of them are exact as a float, in which the loop has time."""
_TABLES = ("topic", "limits")
_ENVIRONMENT, _FLAG = "environment", "flag"
# Read by the clients, from the same environment: not the broker's to refuse.
_CLIENT_VARIABLES = frozenset({"MILLRACE_SERVERS"})


class ConfigError(Exception):
    """A setting is not valid: names the key, where it came from, and what to do."""

    def __init__(self, key: str, source: str, reason: str) -> None:
        super().__init__(f"{source}: {key}: {reason}")
        self.key = key
        self.source = source
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything a broker is told at start. Times in milliseconds, sizes in bytes."""

    data: str = setting("millrace-data", "Data directory; made when it is not there.")
    listen: str = setting(
        "127.0.0.1:9092", "HOST:PORT to listen on; port 0 lets the system choose."
    )
    advertise: str = setting(
        "", "HOST:PORT that clients are told to connect to; empty: the address listened on."
    )
    insecure_listen: bool = setting(
        False,
        "Allows listening beyond loopback, where every peer that can connect can read and write.",
    )
    node_id: int = setting(0, "This broker's id in the cluster.")
    rack: str = setting(
        "",
        "Where the broker is; the replicas of a partition go to different racks. Empty: unknown.",
    )
    loop: str = setting("uvloop", "Event loop: `uvloop`, or `asyncio` for the standard library's.")
    text_dialect: bool = setting(True, "Whether lines typed into netcat are answered.")
    partitions: int = setting(1, "Partitions of a topic that is created without a number.")
    partitions_max: int = setting(
        4_000,
        "Partitions of all topics together. Each holds a descriptor, more while old data is read.",
    )
    housekeeping_interval_ms: int = setting(
        5_000, "How often retention, checkpoints, segment ages and compaction are looked at."
    )
    compaction_bytes_per_second: int = setting(
        16 << 20,
        "How fast compacted topics are read for cleaning: it takes less than a tenth of one core, "
        "and leaves the disk to the producers. Without a bound it reads 200 MB a second, and all "
        "of it.",
    )
    compaction_keys_max: int = setting(
        500_000,
        "Different keys that one cleaning can tell apart, some 70 MB while it runs; a partition "
        "with more that have changed is cleaned in several rounds.",
    )
    scrub_bytes_per_second: int = setting(
        4 << 20,
        "How fast what is on the disk is read in the background, to find what it has changed; 0: "
        "not at all. A disk does not notice 4 MiB/s, and a terabyte takes three days.",
    )
    scrub_interval_ms: int = setting(
        86_400_000,
        "Time from the start of one pass of the scrub to the start of the next, at least.",
    )
    offsets_topic_partitions: int = setting(
        8,
        "Partitions of `__consumer_offsets`, in which groups are kept; counts when it is made. "
        "Each is a directory and an open file. The broker that leads one coordinates its groups, "
        "so more partitions than brokers help nothing.",
    )
    offsets_retention_minutes: int = setting(
        10_080, "How long the offsets of a group without members are kept."
    )
    offset_metadata_max_bytes: int = setting(4_096, "The longest text beside a committed offset.")
    group_min_session_timeout_ms: int = setting(
        6_000, "The shortest session a member may ask for: below it heartbeats are a load."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000,
        "The longest session a member may ask for: a dead member holds its partitions that long.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "How long the first member of a group waits for others; 0 begins at once."
    )
    group_max_size: int = setting(1_000, "Members of one group.")
    group_memory_max_bytes: int = setting(
        64 << 20, "What groups and their members may take in memory: twenty thousand members."
    )
    offsets_memory_max_bytes: int = setting(
        96 << 20,
        "What committed offsets may take in memory: some 300 bytes each, and the text beside it. "
        "They are replayed at start, a million in three seconds.",
    )
    start_wait_ms: int = setting(
        1_000,
        "How long a start waits for all partitions to be open. After that it serves those that "
        "are: what a crash left may take long to look through, and a request for one of the "
        "others is asked to try again.",
    )
    metadata_snapshot_bytes: int = setting(
        1 << 20,
        "Growth of the metadata log from one snapshot of it to the next; a start replays that "
        "much.",
    )
    drain_timeout_ms: int = setting(10_000, "How long a stopping broker lets requests finish.")
    log_level: str = setting("info", "Least level that is logged: debug, info, warning or error.")
    log_format: str = setting(
        "auto", "`json`, `console`, or `auto`: console on a terminal, else json."
    )
    topic: Mapping[str, str] = field(default_factory=dict)
    """Defaults of topic settings, by Kafka's names."""
    limits: Limits = field(default_factory=Limits)
    """What one client and all clients together may use."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """No setting: where `load` found each one that was given: `file`, `environment` or `flag`."""

    @property
    def group(self) -> GroupConfig:
        """What coordinators are told. Raises `ValueError` for settings that contradict."""
        return GroupConfig(
            session_timeout_min_ms=self.group_min_session_timeout_ms,
            session_timeout_max_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_size_max=self.group_max_size,
            memory_bytes=self.group_memory_max_bytes,
            offsets_bytes_max=self.offsets_memory_max_bytes,
            offset_metadata_bytes_max=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * 60_000,
        )

    @property
    def listen_address(self) -> tuple[str, int]:
        """Environment and port of `listen`."""
        return _host_and_port(self.listen)

    @property
    def advertised_address(self) -> tuple[str, int] | None:
        """Environment and port of `advertise`, or None when it is not set."""
        return _host_and_port(self.advertise) if self.advertise else None


def _host_and_port(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
    return host.strip("[]") or "0.0.0.0", int(port)


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
    return _checked(config)


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
        raise ConfigError(name, source, f"{value!r} is not text")
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


def _checked(config: BrokerConfig) -> BrokerConfig:
    for name, words in (
        ("loop", ("uvloop", "asyncio")),
        ("log_level", ("debug", "info", "warning", "error")),
        ("log_format", ("auto", "json", "console")),
    ):
        if getattr(config, name) not in words:
            raise ConfigError(
                name, "configuration", f"{getattr(config, name)!r}; use {', '.join(words)}"
            )
    for name in (
        "partitions",
        "partitions_max",
        "housekeeping_interval_ms",
        "compaction_bytes_per_second",
        "compaction_keys_max",
        "scrub_interval_ms",
        "metadata_snapshot_bytes",
        "drain_timeout_ms",
        "offsets_topic_partitions",
        "offsets_retention_minutes",
        "group_min_session_timeout_ms",
        "group_max_size",
        "group_memory_max_bytes",
        "offsets_memory_max_bytes",
    ):
        if getattr(config, name) < 1:
            raise ConfigError(name, "configuration", f"{getattr(config, name)} is less than 1")
    for name in ("node_id", "start_wait_ms", "scrub_bytes_per_second"):
        if getattr(config, name) < 0:
            raise ConfigError(name, "configuration", f"{getattr(config, name)} is less than 0")
    try:
        TopicConfig({}, config.topic).changed({})
    except ApiError as refused:
        raise ConfigError("topic", "configuration", refused.message) from None
    if not config.data:
        raise ConfigError("data", "configuration", "is empty; name a directory")
    _check_addresses(config)
    return config


def _check_addresses(config: BrokerConfig) -> None:
    for name, text in (("listen", config.listen), ("advertise", config.advertise)):
        if text or name == "listen":
            try:
                _host_and_port(text)
            except ValueError as error:
                raise ConfigError(name, "configuration", str(error)) from None
    host, _ = config.listen_address
    if not config.insecure_listen and not _is_loopback(host):
        raise ConfigError(
            "listen",
            "configuration",
            f"{host} is reachable from other machines and there is no authentication; listen on "
            "127.0.0.1, or say insecure_listen (--insecure-listen) if you mean it",
        )
    # Kafka refuses it too: on another machine this address is that machine.
    advertised, _ = config.advertised_address or config.listen_address
    if advertised in _ALL_ADDRESSES:
        raise ConfigError(
            "advertise",
            "configuration",
            f"clients cannot connect to {advertised}; set advertise (--advertise) to the HOST:PORT "
            "at which they reach this broker",
        )


_ALL_ADDRESSES = ("0.0.0.0", "::")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
