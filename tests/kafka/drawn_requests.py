"""Requests of every api, drawn at random: with names, numbers and bytes that mean something to a
broker, that mean nothing, and that are wrong."""

from __future__ import annotations

import dataclasses
import random
import typing
import uuid
from collections.abc import Sequence
from types import NoneType
from typing import Any, get_args, get_origin

from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.records import encode_batch
from millrace_protocol.schema import Message, wire_fields

TOPICS = {"one": 1, "two": 2}
"""Topics that are there, with their partitions."""
GROUPS = tuple(f"group-{number}" for number in range(50))
KNOWN_IDS = {name: uuid.UUID(int=100 + number) for number, name in enumerate(TOPICS)}
"""Stand for the ids that a broker has given to its topics."""
_UNKNOWN_ID = uuid.UUID(int=7)
_TOPIC_NAMES = (*TOPICS, *TOPICS, "absent", "bad name", "", "x" * 250)
_TOPIC_FIELDS = ("topic", "topic_name")
_PARTITION_FIELDS = ("partition", "partition_index", "index", "partition_indexes", "partitions")
_GROUP_FIELDS = ("group_id", "groups", "groups_names", "group_ids", "key", "coordinator_keys")
_BATCHES = (
    bytes(encode_batch([b"a", b"b"], timestamps_ms=1_700_000_000_000)),
    bytes(encode_batch([b"a"], timestamps_ms=1_700_000_000_000))[:-1],
    bytes(80),
    b"",
)
_NUMBERS: dict[str, tuple[int, ...]] = {
    "acks": (-1, -1, 1, 5),
    "allow_auto_topic_creation": (0,),
    "isolation_level": (0, 1),
    "max_wait_ms": (0, 10),
    "min_bytes": (0, 1, 100),
    "max_bytes": (0, 1_000, 1 << 20, 0x7FFFFFFF),
    "partition_max_bytes": (0, 1_000, 1 << 20),
    "timestamp": (-1, -2, -3, -4, -5, -6, -9, 0, 1_700_000_000_000),
    "fetch_offset": (0, 0, 1, 2, 1 << 40, -5),
    "current_leader_epoch": (-1, 0, 9),
    "leader_epoch": (0, 5, -1),
    "offset": (0, 1, -1, 1 << 40, -7),
    "committed_offset": (0, 5, -1),
    "session_id": (0, 0, 5),
    "session_epoch": (-1, -1, 0, 3),
    "session_timeout_ms": (6_000, 10_000, 10, 0x7FFFFFFF),
    "rebalance_timeout_ms": (300,),
    "generation_id": (-1, 0, 5),
    "key_type": (0, 0, 9),
    "resource_type": (2, 2, 4, 9),
    "config_operation": (0, 1, 2, 9),
    "num_partitions": (-1, 1, 3, 0, -5),
    "replication_factor": (-1, 1, 5, 0),
    "count": (1, 2, 3, 0),
    "timeout_ms": (1_000,),
    "transaction_timeout_ms": (1_000, 60_000),
    "producer_id": (-1,),
    "producer_epoch": (-1,),
    "replica_id": (-1,),
    "election_type": (0, 0, 1),
    "match_type": (0, 0, 1, 2, 5),
    "endpoint_type": (1, 1, 2, 5),
    "retention_time_ms": (-1,),
    "member_epoch": (-1,),
    "response_partition_limit": (2_000, 1, 0),
}
_ACL_NUMBERS = {
    **dict.fromkeys(("resource_type", "resource_type_filter"), (1, 2, 2, 3, 4, 7)),
    **dict.fromkeys(("pattern_type_filter", "resource_pattern_type"), (1, 2, 3, 3, 4)),
    "operation": (1, 2, 3, 8, 12),
    "permission_type": (1, 2, 3),
}
_TEXTS: dict[str, tuple[str, ...]] = {
    "protocol_type": ("consumer", "consumer", "", "other"),
    "group_instance_id": ("instance", "other"),
    "protocol_name": ("range", "other"),
    "member_id": ("", "", "nobody"),
    "resource_name": (*_TOPIC_NAMES, "1", "9"),
    "client_software_name": ("test", ""),
    "client_software_version": ("1.0", "a b"),
    "states_filter": ("Stable", "Empty", "nonsense"),
    "types_filter": ("classic", "consumer"),
    "value": ("1000", "compact", "soon", ""),
    "configuration_keys": ("retention.ms", "nonsense"),
    "entity_type": ("user", "user", "client-id", "ip", "planet", ""),
    "entity_name": ("ada", "10.0.0.1", ""),
    "match": ("ada", "10.0.0.1"),
}
_QUOTAS = (
    "producer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "nonsense",
)
_FLOATS = (1e12, 1e12, 0.0, -1.0, 1e12 + 0.5)
"""Quotas that are of no consequence, or not allowed."""
_SETTINGS = ("retention.ms", "cleanup.policy", "segment.bytes", "nonsense")


class Drawn:
    """Requests of one seed."""

    def __init__(self, seed: int, groups: Sequence[str] = GROUPS) -> None:
        self._rng = random.Random(seed)
        self._groups = groups

    def request(self, cls: type[Message], version: int) -> Message:
        """A request that a version can carry."""
        hints = typing.get_type_hints(cls)
        values = {
            name: self._field(cls, name, field, hints[name], version)
            for name, field in wire_fields(cls, version)
            if field.tag is None
        }
        return cls(**values)

    def broken(self, body: bytes) -> bytes:
        """A body with a byte that is another, or that is cut."""
        if not body:
            return body
        position = self._rng.randrange(len(body))
        if self._rng.random() < 0.5:
            return body[:position]
        return body[:position] + bytes((self._rng.randrange(256),)) + body[position + 1 :]

    def _field(self, cls: type[Message], name: str, field: Any, hint: Any, version: int) -> Any:
        since = field.nullable_since
        may_be_null = getattr(field.type, "nullable", False) or (
            since is not None and since <= version
        )
        kinds = [each for each in get_args(hint) if each is not NoneType] or [hint]
        kind = hint if get_origin(hint) is tuple else kinds[0]
        if NoneType in get_args(hint) and (not may_be_null or self._rng.random() < 0.25):
            default = _default(cls, name)
            if may_be_null or default is not None:
                return default if not may_be_null else None
        if get_origin(kind) is tuple:
            count = self._rng.choice((0, 1, 1, 2))
            element = get_args(kind)[0]
            return tuple(self._value(cls, name, element, version) for _ in range(count))
        return self._value(cls, name, kind, version)

    def _value(self, cls: type[Message], name: str, kind: Any, version: int) -> Any:
        rng = self._rng
        if isinstance(kind, type) and issubclass(kind, Message):
            return self.request(kind, version)
        if kind is bool:
            return False if name == "allow_auto_topic_creation" else rng.random() < 0.5
        if kind is int:
            if "Acl" in cls.__name__ and name in _ACL_NUMBERS:
                return rng.choice(_ACL_NUMBERS[name])
            if name in _PARTITION_FIELDS:
                return rng.choice((0, 0, 0, 1, 9, -1))
            return rng.choice(_NUMBERS.get(name, (0, 1)))
        if kind is float:
            return rng.choice(_FLOATS)
        if kind is uuid.UUID and cls.__name__.startswith("DeleteTopic"):
            return rng.choice((_UNKNOWN_ID, NO_ID))
        if kind is uuid.UUID:
            return rng.choice((*KNOWN_IDS.values(), _UNKNOWN_ID, NO_ID))
        if kind is str:
            return self._text(cls, name)
        if name == "records":
            return rng.choice(_BATCHES)
        return rng.randbytes(rng.choice((0, 3)))

    def _text(self, cls: type[Message], name: str) -> str:
        rng = self._rng
        if cls.__name__ == "OpData":
            return rng.choice(_QUOTAS)
        if name in _TEXTS:
            return rng.choice(_TEXTS[name])
        if name in _GROUP_FIELDS:
            return rng.choice((rng.choice(self._groups), f"absent-{self._groups[0]}", ""))
        is_setting = "Config" in cls.__name__ and name == "name"
        if is_setting:
            return rng.choice(_SETTINGS)
        is_protocol = "Protocol" in cls.__name__ and name == "name"
        if is_protocol:
            return rng.choice(("range", "roundrobin"))
        if name == "name" and cls.__name__ == "CreatableTopic":
            return rng.choice((f"made-{rng.randrange(1 << 30)}", *_TOPIC_NAMES))
        if cls.__name__.startswith("DeleteTopic"):
            return rng.choice(("absent", "bad name", f"made-{rng.randrange(1 << 30)}"))
        if name in (*_TOPIC_FIELDS, "name"):
            return rng.choice(_TOPIC_NAMES)
        return rng.choice(("", "text"))


def _default(cls: type[Message], name: str) -> Any:
    field = next(each for each in dataclasses.fields(cls) if each.name == name)
    return None if field.default is dataclasses.MISSING else field.default
