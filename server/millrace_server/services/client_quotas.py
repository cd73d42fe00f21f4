"""Quotas of clients: described, set and removed (KIP-546).

Plain values in and out, over the rules of `metadata.client_quotas`. A change is made on the active
controller, and another broker asks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace_protocol.acls import Operation
from millrace_protocol.messages import client_quotas as messages
from millrace_protocol.metadata_records import MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.client_quotas import (
    Alteration,
    Entity,
    EntityFilter,
    alter_quotas,
    described_quotas,
)
from millrace_server.metadata.image import ClusterImage
from millrace_server.peers.calls import outcome
from millrace_server.services.forwarded_topics import FORWARD_TIMEOUT_MS
from millrace_server.services.request_context import RequestContext

log = get_logger("millrace.controller")


class QuotaService:
    """Its methods raise `ApiError` for a request as a whole.

    Where another broker is the active controller, this one knows of a change a moment later.
    """

    def __init__(
        self, active: ActiveController, cache: MetadataCache, controller: ControllerCalls
    ) -> None:
        self._active = active
        self._cache = cache
        self._controller = controller

    def describe(
        self, context: RequestContext, filters: Sequence[EntityFilter], *, strict: bool
    ) -> list[tuple[Entity, Mapping[str, float]]]:
        """The entities that have a part for each filter, and with `strict` no others."""
        context.check_cluster(Operation.DESCRIBE_CONFIGS)
        return [*described_quotas(self._cache.image.quotas, filters, strict=strict)]

    async def alter(
        self,
        context: RequestContext,
        alterations: Sequence[Alteration],
        *,
        validate_only: bool = False,
    ) -> Sequence[ApiError | None]:
        """Changes the quotas of entities; the refusal of each, None for a success."""
        context.check_cluster(Operation.ALTER_CONFIGS)
        if validate_only:
            return alter_quotas(self._cache.image.quotas, alterations)[1]
        if not self._controller.is_here:
            return await self._forward(alterations)
        refused: Sequence[ApiError | None] = ()

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            nonlocal refused
            records, refused = alter_quotas(image.quotas, alterations)
            return records

        await self._active.change(decide)
        for each, error in zip(alterations, refused, strict=True):
            if error is None:
                log.info(
                    "quotas changed",
                    by=context.principal,
                    entity=dict(each.entity),
                    changes=dict(each.changes),
                )
        return refused

    async def _forward(self, alterations: Sequence[Alteration]) -> list[ApiError | None]:
        request = messages.AlterClientQuotasRequest(
            tuple(
                messages.QuotaAlteration(
                    tuple(messages.QuotaEntityPart(*part) for part in each.entity),
                    tuple(
                        messages.QuotaChange(key, 0.0 if value is None else value, value is None)
                        for key, value in each.changes
                    ),
                )
                for each in alterations
            ),
            validate_only=False,
        )
        response = await self._controller.forward(
            request, messages.AlterClientQuotasResponse, timeout_ms=FORWARD_TIMEOUT_MS
        )
        return [outcome(each.error_code, each.error_message) for each in response.results]
