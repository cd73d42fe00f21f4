"""Access control: which principal may do what with which resource.

Owns the entries, their meaning, and which changes of them are allowed. An entry allows or denies
one operation, or all, on the resources that its pattern matches, to one principal from one host, or
to all. A denial comes before every permission, and without a permission nothing is allowed.

    READ, WRITE, DELETE, ALTER   allow DESCRIBE as well
    ALTER_CONFIGS                allows DESCRIBE_CONFIGS as well

Sources: KIP-11, KIP-290 (prefixes), KIP-679 (writing to any topic); Kafka's StandardAuthorizer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from millrace_protocol.acls import (
    ANY_HOST,
    ANY_PRINCIPAL,
    ANY_RESOURCE_NAME,
    CLUSTER_NAME,
    OPERATIONS_OF,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from millrace_server.api_error import ApiError, quoted

ACLS_MAX = 10_000
"""Entries of a cluster, some 500 bytes each."""
TEXT_MAX = 1_000
"""Characters of a resource's name and of a principal."""
_IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class AclEntry(NamedTuple):
    """One entry. `host` is an address or `*`; `principal` may be `User:*`."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def concerns(self, principal: str, host: str) -> bool:
        """Whether the entry is about that principal on that host."""
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, ANY_HOST)

    def allows(self, operation: Operation) -> bool:
        """Whether the entry allows an operation, which another one may imply."""
        return self.permission is Permission.ALLOW and (
            self.operation in (operation, Operation.ALL)
            or self.operation in _IMPLIED_BY.get(operation, ())
        )

    def denies(self, operation: Operation) -> bool:
        """Whether the entry denies an operation."""
        return self.permission is Permission.DENY and self.operation in (operation, Operation.ALL)


EntryNumbers = tuple[int, int, str, str, str, int, int]
"""The fields of an entry as they are on the wire and in a record: with numbers for words."""
FilterNumbers = tuple[int, int, str | None, str | None, str | None, int, int]


class AclFilter(NamedTuple):
    """Chooses entries; None stands for each name, principal or host."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, entry: AclEntry) -> bool:
        """Whether the filter chooses an entry."""
        return (
            self.resource_type in (entry.resource_type, ResourceType.ANY)
            and self._matches_pattern(entry)
            and self.principal in (entry.principal, None)
            and self.host in (entry.host, None)
            and self.operation in (entry.operation, Operation.ANY)
            and self.permission in (entry.permission, Permission.ANY)
        )

    def _matches_pattern(self, entry: AclEntry) -> bool:
        if self.pattern_type is PatternType.MATCH and self.name is not None:
            if entry.pattern_type is PatternType.PREFIXED:
                return self.name.startswith(entry.name)
            return entry.name in (self.name, ANY_RESOURCE_NAME)
        is_of_type = self.pattern_type in (entry.pattern_type, PatternType.ANY, PatternType.MATCH)
        return is_of_type and self.name in (entry.name, None)


class AclSet:
    """All entries of a cluster; a change makes another set."""

    __slots__ = ("_literal", "_prefix_lengths", "_prefixed", "entries")

    def __init__(self, entries: Iterable[AclEntry] = ()) -> None:
        self.entries: Mapping[AclEntry, None] = dict.fromkeys(entries)
        self._literal: dict[tuple[ResourceType, str], list[AclEntry]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[AclEntry]] = {}
        lengths: dict[ResourceType, set[int]] = {}
        for entry in self.entries:
            patterns = self._literal
            if entry.pattern_type is PatternType.PREFIXED:
                patterns = self._prefixed
                lengths.setdefault(entry.resource_type, set()).add(len(entry.name))
            patterns.setdefault((entry.resource_type, entry.name), []).append(entry)
        self._prefix_lengths = {kind: sorted(found) for kind, found in lengths.items()}

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclSet) and self.entries == other.entries

    def allows(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Whether a principal on a host may do something with a resource."""
        is_allowed = False
        for entry in self._matching(kind, name):
            if entry.concerns(principal, host):
                if entry.denies(operation):
                    return False
                is_allowed = is_allowed or entry.allows(operation)
        return is_allowed

    def allows_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether there can be a resource of the type with which the principal may do that."""
        for entry in self.entries:
            is_of_type = entry.resource_type is kind and entry.concerns(principal, host)
            if is_of_type and entry.allows(operation):
                wider = self._matching(kind, entry.name)
                if entry.pattern_type is PatternType.PREFIXED or entry.name == ANY_RESOURCE_NAME:
                    # A denial of one name leaves the other names.
                    wider = (
                        each
                        for each in wider
                        if each.pattern_type is PatternType.PREFIXED
                        or each.name == ANY_RESOURCE_NAME
                    )
                if not any(e.concerns(principal, host) and e.denies(operation) for e in wider):
                    return True
        return False

    def _matching(self, kind: ResourceType, name: str) -> Iterator[AclEntry]:
        yield from self._literal.get((kind, name), ())
        if name != ANY_RESOURCE_NAME:
            yield from self._literal.get((kind, ANY_RESOURCE_NAME), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((kind, name[:length]), ())


NO_ACLS = AclSet()


@dataclass(frozen=True, slots=True)
class AclDecisions:
    """The records of a request for several entries, and the refusal of each, None for none."""

    records: Sequence[MetadataRecord]
    refused: Sequence[ApiError | None]


def entry_of(numbers: EntryNumbers) -> AclEntry:
    """An entry. Raises `ApiError` for a number that stands for nothing."""
    kind, pattern, name, principal, host, operation, permission = numbers
    return AclEntry(
        _known(ResourceType, kind),
        _known(PatternType, pattern),
        name,
        principal,
        host,
        _known(Operation, operation),
        _known(Permission, permission),
    )


def filter_of(numbers: FilterNumbers) -> AclFilter:
    """A filter. Raises `ApiError` for a number that stands for nothing."""
    kind, pattern, name, principal, host, operation, permission = numbers
    return AclFilter(
        _known(ResourceType, kind),
        _known(PatternType, pattern),
        name,
        principal,
        host,
        _known(Operation, operation),
        _known(Permission, permission),
    )


def create_acls(known: AclSet, wanted: Sequence[EntryNumbers]) -> AclDecisions:
    """Adds entries; one that there is already stays."""
    added: dict[AclEntry, None] = {}
    refused: list[ApiError | None] = []
    for numbers in wanted:
        try:
            entry = entry_of(numbers)
        except ApiError as unknown:
            refused.append(unknown.with_traceback(None))
            continue
        error = _invalid(entry)
        if error is None and len(known) + len(added) >= ACLS_MAX:
            error = ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The cluster has {ACLS_MAX} access control entries, its limit; remove some, or "
                "name groups of resources by a prefix",
            )
        refused.append(error)
        if error is None and entry not in known.entries:
            added[entry] = None
    return AclDecisions([AccessControlEntryRecord(*entry) for entry in added], refused)


def matching_acls(known: AclSet, chosen: AclFilter) -> list[AclEntry]:
    """The entries that a filter chooses, in the order in which they were added."""
    return [entry for entry in known.entries if chosen.matches(entry)]


def delete_acls(known: AclSet, filters: Iterable[AclFilter]) -> list[MetadataRecord]:
    """Removes each entry that a filter chooses."""
    found = dict.fromkeys(entry for each in filters for entry in matching_acls(known, each))
    return [RemoveAccessControlEntryRecord(*entry) for entry in found]


E = TypeVar("E", bound=IntEnum)


def _known(words: type[E], number: int) -> E:
    try:
        return words(number)
    except ValueError:
        known = ", ".join(f"{each.value} {each.name}" for each in words)
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"There is no {words.__name__} {number}; there are {known}"
        ) from None


def _invalid(entry: AclEntry) -> ApiError | None:
    """Why there cannot be such an entry."""
    kind, operation = entry.resource_type, entry.operation
    if kind is ResourceType.ANY:
        problem = "An entry names one type of resource, not any"
    elif entry.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = "The pattern of an entry is literal or prefixed; any and match are for filters"
    elif entry.permission is Permission.ANY:
        problem = "An entry allows or denies"
    elif operation is not Operation.ALL and operation not in OPERATIONS_OF[kind]:
        known = ", ".join(each.name for each in sorted({*OPERATIONS_OF[kind], Operation.ALL}))
        problem = f"There is no {operation.name} of a {kind.name}; there are {known}"
    elif not 0 < len(entry.name) <= TEXT_MAX:
        problem = f"The name of a resource has 1 to {TEXT_MAX} characters, not {len(entry.name)}"
    elif kind is ResourceType.CLUSTER and entry.name not in (CLUSTER_NAME, ANY_RESOURCE_NAME):
        problem = f"The only CLUSTER is named {CLUSTER_NAME}, not {quoted(entry.name)}"
    elif not entry.principal.startswith("User:") or len(entry.principal) <= len("User:"):
        problem = f"{quoted(entry.principal)} is no principal; write User:NAME"
    elif len(entry.principal) > TEXT_MAX:
        problem = f"A principal has up to {TEXT_MAX} characters, not {len(entry.principal)}"
    elif not _is_host(entry.host):
        problem = f"{quoted(entry.host)} is no host; give an IP address, or * for all"
    else:
        return None
    return ApiError(ErrorCode.INVALID_REQUEST, problem)


def _is_host(host: str) -> bool:
    if host == ANY_HOST:
        return True
    try:
        return str(ipaddress.ip_address(host)) == host
    except ValueError:
        return False
