"""DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

from millrace_protocol.messages import client_quotas as messages
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.metadata.client_quotas import Alteration, EntityFilter
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def describe(
    services: Services, context: RequestContext, request: messages.DescribeClientQuotasRequest
) -> messages.DescribeClientQuotasResponse:
    """Answers from the image of this broker."""
    filters = [
        EntityFilter(each.entity_type, each.match_type, each.match) for each in request.filters
    ]
    found = services.quotas.describe(context, filters, strict=request.strict)
    return messages.DescribeClientQuotasResponse(
        tuple(
            messages.QuotaEntity(
                tuple(messages.QuotaEntityPart(*part) for part in entity),
                tuple(messages.QuotaValue(*value) for value in values.items()),
            )
            for entity, values in found
        )
    )


async def alter(
    services: Services, context: RequestContext, request: messages.AlterClientQuotasRequest
) -> messages.AlterClientQuotasResponse:
    """Changes each entity for itself."""
    alterations = [
        Alteration(
            [(part.entity_type, part.entity_name) for part in each.entity],
            [(change.key, None if change.remove else change.value) for change in each.changes],
        )
        for each in request.entities
    ]
    refused = await services.run(
        services.quotas.alter(context, alterations, validate_only=request.validate_only)
    )
    return messages.AlterClientQuotasResponse(
        tuple(messages.QuotaAlterationResult(*outcome(error)) for error in refused)
    )
