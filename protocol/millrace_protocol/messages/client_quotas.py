"""DescribeClientQuotas, AlterClientQuotas: what clients may take of each broker."""

from __future__ import annotations

from millrace_protocol.primitives import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    NULLABLE_STRING,
    STRING,
)
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class QuotaEntityPart(Message):
    """One part of an entity: a user, a client id or an address."""

    entity_type: str = wire(STRING, "`user`, `client-id` or `ip`")
    entity_name: str | None = wire(NULLABLE_STRING, "its name; null: each that has no quota")


@message
class QuotaFilter(Message):
    """Chooses entities by one of their parts."""

    entity_type: str = wire(STRING, "`user`, `client-id` or `ip`")
    match_type: int = wire(INT8, "0: of that name; 1: with null for its name; 2: any")
    match: str | None = wire(NULLABLE_STRING, "the name with 0, else null")


@message
class QuotaValue(Message):
    """One quota of an entity."""

    key: str = wire(STRING, "name of the quota")
    value: float = wire(FLOAT64, "what it allows")


@message
class DescribeClientQuotasRequest(Request):
    """Asks for the entities that have a part for each filter."""

    filters: tuple[QuotaFilter, ...] = wire(array_of(QuotaFilter), "one of a type; none: all")
    strict: bool = wire(BOOLEAN, "whether the entity may have no other parts")


@message
class QuotaEntity(Message):
    """An entity with its quotas, at least one."""

    entity: tuple[QuotaEntityPart, ...] = wire(array_of(QuotaEntityPart), "its parts")
    values: tuple[QuotaValue, ...] = wire(array_of(QuotaValue), "its quotas")


@message
class DescribeClientQuotasResponse(Message):
    """The entities that were chosen."""

    entities: tuple[QuotaEntity, ...] = wire(array_of(QuotaEntity), "in no order")


@message
class QuotaChange(Message):
    """A quota that is set or removed."""

    key: str = wire(STRING, "name of the quota")
    value: float = wire(FLOAT64, "what it allows; any where it is removed")
    remove: bool = wire(BOOLEAN, "whether it is removed")


@message
class QuotaAlteration(Message):
    """Changes of one entity, all or none."""

    entity: tuple[QuotaEntityPart, ...] = wire(array_of(QuotaEntityPart), "its parts")
    changes: tuple[QuotaChange, ...] = wire(array_of(QuotaChange), "each key once")


@message
class AlterClientQuotasRequest(Request):
    """Sets and removes quotas, of each entity for itself."""

    entities: tuple[QuotaAlteration, ...] = wire(array_of(QuotaAlteration), "each once")
    validate_only: bool = wire(BOOLEAN, "whether nothing is changed")


@message
class QuotaAlterationResult(Message):
    """The result of one entity."""

    error_code: int = wire(INT16, "error of this entity (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")


@message
class AlterClientQuotasResponse(Message):
    """One result per entity, in the order of the request."""

    results: tuple[QuotaAlterationResult, ...] = wire(
        array_of(QuotaAlterationResult), "the results"
    )
