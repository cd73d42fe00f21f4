"""Quotas of clients: what each may take of a broker, and which changes of that are allowed.

Owns the entities that have quotas and which of them a client belongs to. An entity is made of
parts: a user, a client id, both, or an address. A part without a name stands for each name that
has no quota of its own. A client has the quota of the first of these entities that has one:

    user and client id    user and each client id    user
    each user and client id    each user and each client id    each user
    client id    each client id

Clients that share an entity with names share its quota; each name that an entity without one stands
for has the quota for itself.

Sources: KIP-13, KIP-55 (users), KIP-124 (request time), KIP-546 (the apis), KIP-599 (changes of
the metadata), KIP-612 (connections).
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import ClientQuotaRecord, MetadataRecord, QuotaEntityName
from millrace_server.api_error import ApiError, quoted

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
_OF_CLIENTS = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
QUOTAS = (*_OF_CLIENTS, CONNECTION_CREATION_RATE)
_WHOLE = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""Quotas that are whole numbers, and the largest of each."""
ENTITIES_MAX = 10_000
NAME_CHARACTERS_MAX = 1_000
EXACT, DEFAULT, ANY = range(3)
"""How a filter compares a name."""

Part = tuple[str, str | None]
"""Type and name of a part of an entity; None is each name that has no quota of its own."""
Entity = tuple[Part, ...]
"""The parts of an entity, by type."""
NO_QUOTAS: Mapping[str, float] = MappingProxyType({})


class Quota(NamedTuple):
    """A quota of one client, and the names of the clients that share it."""

    shared_by: tuple[str | None, str | None]
    """User and client id; None where they do not matter."""
    value: float


class EntityFilter(NamedTuple):
    """Chooses entities by the part of a type. `match_type` is EXACT, DEFAULT or ANY."""

    entity_type: str
    match_type: int
    match: str | None


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes of one entity: the new value of each quota, None where it is removed."""

    entity: Sequence[Part]
    changes: Sequence[tuple[str, float | None]]


class QuotaSet:
    """All quotas of a cluster; a change makes another set."""

    __slots__ = ("entities",)

    def __init__(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        self.entities = entities

    def __bool__(self) -> bool:
        return bool(self.entities)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuotaSet) and self.entities == other.entities

    def of_client(self, user: str, client_id: str) -> dict[str, Quota]:
        """The quotas of a client by their names; a name is missing where there is none."""
        found: dict[str, Quota] = {}
        for entity, shared_by in _entities_of(user, client_id):
            for key, value in self.entities.get(entity, NO_QUOTAS).items():
                found.setdefault(key, Quota(shared_by, value))
        return found

    def connection_rate(self, address: str) -> float | None:
        """How many connections a second an address may open; None for no bound."""
        for name in (address, None):
            value = self.entities.get(((IP, name),), NO_QUOTAS).get(CONNECTION_CREATION_RATE)
            if value is not None:
                return value
        return None


NO_QUOTA_SET = QuotaSet(MappingProxyType({}))


def entity_of(parts: Sequence[Part]) -> Entity:
    """The entity that is made of parts. Raises `ApiError`."""
    entity = tuple(sorted(parts, key=itemgetter(0)))
    types = [kind for kind, _ in entity]
    for kind in types:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"There is no entity type {quoted(kind)}; there are user, client-id, ip")
    if types not in ([USER], [CLIENT_ID], [CLIENT_ID, USER], [IP]):
        raise _invalid("An entity is a user, a client-id, both, or an ip")
    for kind, name in entity:
        if name is None:
            continue
        if not 0 < len(name) <= NAME_CHARACTERS_MAX:
            raise _invalid(f"The name of a {kind} has 1 to {NAME_CHARACTERS_MAX} characters")
        if kind == IP:
            entity = ((IP, _address(name)),)
    return entity


def alter_quotas(
    quotas: QuotaSet, alterations: Sequence[Alteration]
) -> tuple[list[MetadataRecord], list[ApiError | None]]:
    """Decides on each entity for itself: records of what is allowed, and the refusal of each."""
    records: list[MetadataRecord] = []
    refused: list[ApiError | None] = []
    known = set(quotas.entities)
    named: set[Entity] = set()
    for each in alterations:
        try:
            entity = entity_of(each.entity)
            if entity in named:
                raise ApiError(ErrorCode.INVALID_REQUEST, "An entity is named twice")
            _check_once([key for key, _ in each.changes])
            present = quotas.entities.get(entity, NO_QUOTAS)
            made = [
                _record(entity, key, value)
                for key, value in each.changes
                if value is not None or key in present
            ]
            adds = any(value is not None for _, value in each.changes) and entity not in known
            if adds and len(known) >= ENTITIES_MAX:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"{ENTITIES_MAX} entities have quotas, as many as a cluster keeps; remove some",
                )
        except ApiError as error:
            refused.append(error)
            continue
        named.add(entity)
        if adds:
            known.add(entity)
        refused.append(None)
        records += made
    return records, refused


def described_quotas(
    quotas: QuotaSet, filters: Sequence[EntityFilter], *, strict: bool
) -> Iterator[tuple[Entity, Mapping[str, float]]]:
    """The entities that have a part for each filter; `strict`: and no others. Raises `ApiError`."""
    _check_filters(filters)
    for entity, values in quotas.entities.items():
        if strict and len(entity) != len(filters):
            continue
        parts = dict(entity)
        if all(_matches(parts, each) for each in filters):
            yield entity, values


def _entities_of(
    user: str, client_id: str
) -> Iterator[tuple[Entity, tuple[str | None, str | None]]]:
    """The entities that a client may belong to, the first one first."""
    for name in (user, None):
        for id_name in (client_id, None):
            yield ((CLIENT_ID, id_name), (USER, name)), (user, client_id)
        yield ((USER, name),), (user, None)
    for id_name in (client_id, None):
        yield ((CLIENT_ID, id_name),), (None, client_id)


def _record(entity: Entity, key: str, value: float | None) -> ClientQuotaRecord:
    if value is not None:
        _check_value(entity, key, value)
    parts = tuple(QuotaEntityName(*part) for part in entity)
    return ClientQuotaRecord(parts, key, 0.0 if value is None else value, value is None)


def _check_value(entity: Entity, key: str, value: float) -> None:
    keys = (CONNECTION_CREATION_RATE,) if entity[0][0] == IP else _OF_CLIENTS
    if key not in keys:
        raise _invalid(f"{quoted(key)} is no quota of such an entity; there are {', '.join(keys)}")
    if not (value > 0 and math.isfinite(value)):
        raise _invalid(f"{key} is {value}; it must be above 0")
    most = _WHOLE.get(key)
    if most is not None and (value != int(value) or value > most):
        raise _invalid(f"{key} is {value}; it must be a whole number of at most {most}")


def _check_once(keys: Sequence[str]) -> None:
    if len(set(keys)) < len(keys):
        raise _invalid("A quota of an entity is changed twice; change each once")


def _check_filters(filters: Sequence[EntityFilter]) -> None:
    types = [each.entity_type for each in filters]
    for each in filters:
        kind = each.entity_type
        if not kind:
            raise _invalid("A filter has no entity type")
        if types.count(kind) > 1:
            raise _invalid(f"Two filters are about {quoted(kind)}; give one for each entity type")
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"There is no entity type {quoted(kind)}; there are user, client-id, ip",
            )
        if each.match_type not in (EXACT, DEFAULT, ANY):
            raise _invalid(f"There is no match type {each.match_type}; there are 0, 1 and 2")
        if (each.match is not None) is not (each.match_type == EXACT):
            raise _invalid("A filter has a name with match type 0, and none with 1 and 2")
    if IP in types and len(types) > 1:
        raise _invalid("No entity has an ip and another part")


def _matches(parts: Mapping[str, str | None], chosen: EntityFilter) -> bool:
    if chosen.entity_type not in parts:
        return False
    return chosen.match_type == ANY or parts[chosen.entity_type] == chosen.match


def _address(name: str) -> str:
    """The address as connections have it."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        raise _invalid(f"{quoted(name)} is no IP address") from None


def _invalid(sentence: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, sentence)
