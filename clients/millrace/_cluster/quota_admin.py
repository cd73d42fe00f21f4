"""Quotas for an operator: set, listed and removed (KIP-546).

Owns these calls of the admin client. The active controller answers all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from millrace._broker_error import broker_error
from millrace._cluster.cluster import Cluster
from millrace.groups import Outcome
from millrace.quotas import EACH, Quota, QuotaEntity
from millrace_protocol.messages import client_quotas as messages

_EXACT, _DEFAULT = 0, 1


class QuotaAdmin:
    """The part of the admin client that knows quotas."""

    _cluster: Cluster

    def _check(self) -> None:
        """Raises unless the client runs."""
        raise NotImplementedError

    async def alter_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[Quota, float | None]],
        *,
        validate_only: bool = False,
    ) -> dict[QuotaEntity, Outcome[bool]]:
        """Sets quotas, and removes those whose value is None, of each entity for itself.

        Other quotas of an entity stay. Raises `BrokerError`.
        """
        self._check()
        answer = await self._cluster.call(
            messages.AlterClientQuotasRequest(
                tuple(
                    messages.QuotaAlteration(_parts(entity), _changes(values))
                    for entity, values in changes.items()
                ),
                validate_only,
            ),
            messages.AlterClientQuotasResponse,
            to=self._cluster.controller,
        )
        return {
            entity: Outcome(True)
            if not result.error_code
            else Outcome(error=broker_error(result.error_code, result.error_message))
            for entity, result in zip(changes, answer.results, strict=True)
        }

    async def list_quotas(
        self, chosen: QuotaEntity | None = None
    ) -> dict[QuotaEntity, dict[Quota, float]]:
        """The quotas of all entities, or of those with the names of `chosen`."""
        self._check()
        filters = tuple(
            messages.QuotaFilter(kind, _DEFAULT if name is None else _EXACT, name)
            for kind, name in (() if chosen is None else _names(chosen))
        )
        answer = await self._cluster.call(
            messages.DescribeClientQuotasRequest(filters, strict=False),
            messages.DescribeClientQuotasResponse,
            to=self._cluster.controller,
        )
        return {
            _entity(each.entity): {cast("Quota", value.key): value.value for value in each.values}
            for each in answer.entities
        }


def _names(entity: QuotaEntity) -> Iterator[tuple[str, str | None]]:
    """Type and name of each part; None for `EACH`."""
    parts = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    for kind, name in parts.items():
        if name is not None:
            yield kind, None if name == EACH else name


def _parts(entity: QuotaEntity) -> tuple[messages.QuotaEntityPart, ...]:
    return tuple(messages.QuotaEntityPart(*part) for part in _names(entity))


def _changes(values: Mapping[Quota, float | None]) -> tuple[messages.QuotaChange, ...]:
    return tuple(
        messages.QuotaChange(key, 0.0 if value is None else float(value), value is None)
        for key, value in values.items()
    )


def _entity(parts: Iterable[messages.QuotaEntityPart]) -> QuotaEntity:
    names = {
        each.entity_type: EACH if each.entity_name is None else each.entity_name for each in parts
    }
    return QuotaEntity(names.get("user"), names.get("client-id"), names.get("ip"))
