"""Topic settings: Kafka's keys, their types, bounds, defaults and meaning.

Owns parsing and validation of settings as text, which is how they travel and are stored. Refuses
to know where a value comes from; the caller layers a topic's own values over the broker's
defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
DAY_MS = 86_400_000

TOPIC_NAME_SIZE_MAX = 249
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
INTERNAL_TOPIC_PREFIX = "__"


def check_topic_name(name: str) -> None:
    """Raises `ApiError` unless `name` is a topic name a client may use (wire_spec.md W-6.5).

    The names that are allowed are also safe as a directory name; `.` and `..` are not.
    """
    if not name:
        reason = "is empty"
    elif len(name) > TOPIC_NAME_SIZE_MAX:
        reason = f"has {len(name)} characters"
    elif name in (".", ".."):
        reason = f"is {name!r}"
    elif not _TOPIC_NAME.match(name):
        reason = f"{name!r} has a character that is not allowed"
    else:
        return
    raise ApiError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"The topic name {reason}; use 1 to {TOPIC_NAME_SIZE_MAX} of A-Z a-z 0-9 . _ - "
        "and neither . nor ..",
    )


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting: an integer within bounds (both included), one of a few words, or a share.

    With `is_list`, several of the words with commas between them; a share is 0 to 1.
    """

    name: str
    default: str
    doc: str
    minimum: int = 0
    maximum: int = _INT64_MAX
    words: tuple[str, ...] = ()
    is_list: bool = False
    is_share: bool = False

    def check(self, value: str) -> str:
        """The value in its canonical form; raises `ApiError` with the key and the reason."""
        if self.is_list:
            chosen = {word.strip() for word in value.split(",")}
            if not chosen.issubset(self.words):
                words = " or ".join(self.words)
                self._refuse(value, f"use {words}, or several with commas between them")
            return ",".join(word for word in self.words if word in chosen)
        if self.words:
            if value not in self.words:
                self._refuse(value, f"use {' or '.join(self.words)}")
            return value
        if self.is_share:
            return self._check_share(value)
        try:
            number = int(value)
        except ValueError:
            self._refuse(value, "use a whole number")
        if not self.minimum <= number <= self.maximum:
            self._refuse(value, f"use {self.minimum} to {self.maximum}")
        return str(number)

    def _check_share(self, value: str) -> str:
        try:
            share = float(value)
        except ValueError:
            self._refuse(value, "use a number from 0 to 1")
        if not 0 <= share <= 1:
            self._refuse(value, "use 0 to 1")
        return repr(share)

    def _refuse(self, value: str, advice: str) -> NoReturn:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{self.name} is {value!r}; {advice} ({self.doc})")


_KEYS = (
    ConfigKey(
        "cleanup.policy",
        "delete",
        "delete: retention deletes old segments; compact: the last record of each key stays",
        words=("compact", "delete"),
        is_list=True,
    ),
    ConfigKey(
        "compression.type",
        "producer",
        "producer: a batch stays as it was sent; else the broker compresses it anew if need be",
        words=("gzip", "lz4", "producer", "snappy", "uncompressed", "zstd"),
    ),
    ConfigKey(
        "delete.retention.ms",
        str(DAY_MS),
        "milliseconds that a null value stays in a compacted topic, from its first cleaning on",
    ),
    ConfigKey(
        "durability",
        "fsync",
        "fsync: an append counts when it is on disk; os: in the page cache, lost with a power cut",
        words=("fsync", "os"),
    ),
    ConfigKey(
        "index.interval.bytes",
        "4096",
        "bytes of log between two entries of the offset index",
        maximum=_INT32_MAX,
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        str(_INT64_MAX),
        "milliseconds after which a record is cleaned however little else is dirty",
        minimum=1,
    ),
    ConfigKey(
        "max.message.bytes",
        "1048588",
        "largest record batch, in bytes, its 61-byte header included",
        minimum=61,
        maximum=_INT32_MAX,
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        str(3_600_000),
        "milliseconds that a client's timestamp may be ahead of the broker's clock",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        str(_INT64_MAX),
        "milliseconds that a client's timestamp may be behind the broker's clock",
    ),
    ConfigKey(
        "message.timestamp.type",
        "CreateTime",
        "CreateTime: timestamps of the client; LogAppendTime: of the broker",
        words=("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        "0.5",
        "share of a compacted partition that is dirty when it is cleaned",
        is_share=True,
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        "0",
        "milliseconds that a record stays as it is in a compacted topic",
    ),
    ConfigKey(
        "min.insync.replicas",
        "1",
        "replicas that must have a batch before acks=all is answered",
        minimum=1,
        maximum=_INT32_MAX,
    ),
    ConfigKey(
        "retention.bytes",
        "-1",
        "bytes of a partition above which old segments are deleted; -1: no limit",
        minimum=-1,
    ),
    ConfigKey(
        "retention.ms",
        str(7 * DAY_MS),
        "milliseconds after which old segments are deleted; -1: never",
        minimum=-1,
    ),
    ConfigKey(
        "segment.bytes",
        str(100 << 20),
        "size, in bytes, at which a segment is closed and the next begins",
        minimum=1024,
        maximum=_INT32_MAX,
    ),
    ConfigKey(
        "segment.ms",
        str(7 * DAY_MS),
        "milliseconds after which a segment is closed even when it is not full",
        minimum=1,
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        "false",
        "whether a replica that may miss records leads when no other can: acked records are lost",
        words=("false", "true"),
    ),
)
TOPIC_CONFIG_KEYS: dict[str, ConfigKey] = {key.name: key for key in _KEYS}


def config_key(name: str) -> ConfigKey:
    """The key of that name; raises `ApiError` naming the keys there are."""
    key = TOPIC_CONFIG_KEYS.get(name)
    if key is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"There is no topic setting {name!r}; the settings are {', '.join(TOPIC_CONFIG_KEYS)}",
        )
    return key


class TopicConfig:
    """The settings in force for one topic: its own values over the broker's defaults."""

    __slots__ = ("defaults", "own")

    def __init__(self, own: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        self.own = dict(own)
        self.defaults = defaults

    def text(self, name: str) -> str:
        """The value in force, as text."""
        key = TOPIC_CONFIG_KEYS[name]
        return self.own.get(name) or self.defaults.get(name) or key.default

    def source(self, name: str) -> str:
        """Where the value in force comes from: `topic`, `broker` or `default`."""
        if self.own.get(name):
            return "topic"
        return "broker" if self.defaults.get(name) else "default"

    def number(self, name: str) -> int:
        """The value in force of an integer setting."""
        return int(self.text(name))

    def share(self, name: str) -> float:
        """The value in force of a share."""
        return float(self.text(name))

    def words(self, name: str) -> list[str]:
        """The words in force of a list."""
        return self.text(name).split(",")

    def changed(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """The topic's own values after `changes` (None: back to the default), all checked.

        Raises `ApiError` for an unknown key, a bad value, or values that contradict each other;
        nothing has changed then.
        """
        own = dict(self.own)
        for name, value in changes.items():
            key = config_key(name)
            if value is None:
                own.pop(name, None)
            else:
                own[name] = key.check(value)
        TopicConfig(own, self.defaults)._check_together()
        return own

    def _check_together(self) -> None:
        minimum, maximum = "min.compaction.lag.ms", "max.compaction.lag.ms"
        if self.number(minimum) > self.number(maximum):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{minimum} is {self.number(minimum)} and {maximum} is {self.number(maximum)}; "
                "a record cannot be cleaned before the one and after the other",
            )
