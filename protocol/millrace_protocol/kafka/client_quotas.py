"""DescribeClientQuotas (48) and AlterClientQuotas (49): quotas of clients (KIP-546)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
)
from millrace_protocol.schema import Message, array_of, message, wire


@message
class ComponentData(Message):
    """A filter for one part of an entity."""

    entity_type: str = wire(STRING, "user, client-id or ip")
    match_type: int = wire(INT8, "how the name is compared")
    match: str | None = wire(NULLABLE_STRING, "the name; null where there is none to compare")


@message
class DescribeClientQuotasRequest(KafkaRequest):
    """Asks for the entities that have a part for each filter."""

    flexible_since: ClassVar[int | None] = 1

    components: tuple[ComponentData, ...] = wire(array_of(ComponentData), "the filters")
    strict: bool = wire(BOOLEAN, "whether entities with other parts are left out")


@message
class EntityData(Message):
    """One part of an entity."""

    entity_type: str = wire(STRING, "user, client-id or ip")
    entity_name: str | None = wire(NULLABLE_STRING, "its name; null: the default of the type")


@message
class ValueData(Message):
    """One quota."""

    key: str = wire(STRING, "name of the quota")
    value: float = wire(FLOAT64, "what it allows")


@message
class QuotaEntry(Message):
    """An entity with its quotas."""

    entity: tuple[EntityData, ...] = wire(array_of(EntityData), "its parts")
    values: tuple[ValueData, ...] = wire(array_of(ValueData), "its quotas")


@message
class DescribeClientQuotasResponse(Message):
    """The entities."""

    flexible_since: ClassVar[int | None] = 1

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    entries: tuple[QuotaEntry, ...] | None = wire(
        array_of(QuotaEntry, nullable=True), "the entities; null on error", default=()
    )


@message
class OpData(Message):
    """A quota that is set or removed."""

    key: str = wire(STRING, "name of the quota")
    value: float = wire(FLOAT64, "what it allows")
    remove: bool = wire(BOOLEAN, "whether it is removed")


@message
class AlterClientQuotasEntry(Message):
    """Changes of one entity."""

    entity: tuple[EntityData, ...] = wire(array_of(EntityData), "its parts")
    ops: tuple[OpData, ...] = wire(array_of(OpData), "its changes")


@message
class AlterClientQuotasRequest(KafkaRequest):
    """Sets and removes quotas."""

    flexible_since: ClassVar[int | None] = 1

    entries: tuple[AlterClientQuotasEntry, ...] = wire(
        array_of(AlterClientQuotasEntry), "the entities"
    )
    validate_only: bool = wire(BOOLEAN, "whether nothing is changed")


@message
class AlterClientQuotasResult(Message):
    """The result of one entity."""

    error_code: int = wire(INT16, "error of the entity")
    error_message: str | None = wire(NULLABLE_STRING, "the reason")
    entity: tuple[EntityData, ...] = wire(array_of(EntityData), "its parts")


@message
class AlterClientQuotasResponse(Message):
    """One result per entity."""

    flexible_since: ClassVar[int | None] = 1

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    entries: tuple[AlterClientQuotasResult, ...] = wire(
        array_of(AlterClientQuotasResult), "the results", default=()
    )
