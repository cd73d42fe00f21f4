"""A request of any api, made from its declaration: about one topic, one group and the cluster.

Neither the topic nor the group exists, and numbers are such that an allowed request fails for
another reason: nothing is changed.
"""

from __future__ import annotations

import dataclasses
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from millrace_protocol.schema import Message
from tests.access.rights import GROUP, TOPIC

NO_BROKER = 99
_TEXTS = {"group": GROUP, "group_id": GROUP, "groups": GROUP, "groups_names": GROUP, "key": GROUP}
_TEXTS |= {"coordinator_keys": GROUP, "group_ids": GROUP, "member_id": "", "states": "Stable"}
_TEXTS |= {"entity_type": "user", "entity_name": "none", "match": "none"}
_TEXTS |= {"transactional_id": "", "instance_id": "", "group_instance_id": "", "prefix": "none"}
_NUMBERS = {"acks": -1, "resource_type": 2, "node_id": NO_BROKER, "brokers": -1, "replica_id": -1}
_NUMBERS |= {"producer_id": -1, "producer_epoch": -1, "session_epoch": -1, "timestamp_ms": -1}
_NUMBERS |= {"resource_type_filter": 2, "pattern_type_filter": 3, "resource_pattern_type": 3}
_NUMBERS |= {"endpoint_type": 1, "response_partition_limit": 1, "timestamp": -1, "pattern_type": 3}
_NUMBERS |= {
    "permission": 3,
    "permission_type": 3,
    "operation": 3,
    "timeout_ms": 1_000,
    "generation": -1,
}
_NUMBERS |= {"generation_id": -1}
_NONE = ("transactional_id", "instance_id", "group_instance_id", "cursor", "replica_state", "rack")


def any_request(kind: type[Message]) -> Any:
    """A request of a class."""
    return _struct(kind)


def _struct(kind: type[Any]) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{each.name: _value(hints[each.name], each.name) for each in _fields(kind)})


def _fields(kind: type[Any]) -> Iterator[dataclasses.Field[Any]]:
    yield from dataclasses.fields(kind)


def _value(hint: Any, name: str) -> Any:
    members = typing.get_args(hint)
    if type(None) in members:
        if name in _NONE:
            return None
        hint = next(each for each in members if each is not type(None))
        members = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        element = members[0]
        # What is done by id has tests of its own.
        return () if name == "forgotten_topics_data" else (_value(element, name),)
    if bytes in members:
        return b""
    if dataclasses.is_dataclass(hint):
        return _struct(typing.cast("type[Any]", hint))
    simple = {
        int: _NUMBERS.get(name, 0),
        bool: False,
        float: 1.0,
        bytes: b"",
        str: _TEXTS.get(name, TOPIC),
        uuid.UUID: uuid.UUID(int=0),
    }
    return simple[hint]


def codes_of(response: object) -> list[int]:
    """Every error code in a response, wherever it stands."""
    if isinstance(response, tuple):
        return [code for each in response for code in codes_of(each)]
    if not isinstance(response, Message):
        return []
    found = []
    for each in dataclasses.fields(response):
        value = getattr(response, each.name)
        if each.name.endswith("error_code"):
            found.append(int(value))
        else:
            found += codes_of(value)
    return found
