"""Entries of access control, as the admin client takes and returns them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

from millrace.errors import ConfigError

ResourceType = Literal["topic", "group", "cluster", "transactional_id", "user"]
Pattern = Literal["literal", "prefixed"]
Operation = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
]
Permission = Literal["allow", "deny"]
CLUSTER = "kafka-cluster"
"""The name of the cluster as a resource."""


@dataclass(frozen=True, slots=True)
class Acl:
    """One right that a principal has, or is denied.

    `principal` is `User:NAME`, or `User:*` for all; `host` the IP address of the client, or `*`.
    With `pattern="prefixed"` the entry is for all resources whose names begin with `resource_name`;
    the literal name `*` stands for all. A word that is none raises `ConfigError`.
    """

    principal: str
    operation: Operation
    resource_type: ResourceType
    resource_name: str
    pattern: Pattern = "literal"
    host: str = "*"
    permission: Permission = "allow"

    def __post_init__(self) -> None:
        _check_words(self)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Chooses the entries that agree with every field; None agrees with everything.

    `pattern="match"` with a `resource_name` chooses what a resource of that name matches.
    """

    principal: str | None = None
    operation: Operation | None = None
    resource_type: ResourceType | None = None
    resource_name: str | None = None
    pattern: Literal["literal", "prefixed", "match"] | None = None
    host: str | None = None
    permission: Permission | None = None

    def __post_init__(self) -> None:
        _check_words(self)


def _check_words(entry: Acl | AclFilter) -> None:
    hints = get_type_hints(type(entry))
    for each in fields(entry):
        value = getattr(entry, each.name)
        words = [word for word in _leaves(hints[each.name]) if isinstance(word, str)]
        if words and value is not None and value not in words:
            raise ConfigError(f"{each.name}: {value!r} is none of {', '.join(words)}")


def _leaves(hint: object) -> list[object]:
    inner = get_args(hint)
    return [leaf for each in inner for leaf in _leaves(each)] if inner else [hint]
