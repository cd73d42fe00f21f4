"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import client_quotas as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.metadata.client_quotas import Alteration, EntityFilter
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def describe(
    services: Services,
    context: RequestContext,
    request: messages.DescribeClientQuotasRequest,
    version: int,
) -> messages.DescribeClientQuotasResponse:
    """Answers from the image of this broker."""
    filters = [
        EntityFilter(each.entity_type, each.match_type, each.match) for each in request.components
    ]
    try:
        found = services.quotas.describe(context, filters, strict=request.strict)
    except ApiError as error:
        return messages.DescribeClientQuotasResponse(
            0, kafka_code(error.code), error.message, entries=None
        )
    return messages.DescribeClientQuotasResponse(
        entries=tuple(
            messages.QuotaEntry(
                tuple(messages.EntityData(*part) for part in entity),
                tuple(messages.ValueData(*value) for value in values.items()),
            )
            for entity, values in found
        )
    )


async def alter(
    services: Services,
    context: RequestContext,
    request: messages.AlterClientQuotasRequest,
    version: int,
) -> messages.AlterClientQuotasResponse:
    """Changes each entity for itself."""
    alterations = [
        Alteration(
            [(part.entity_type, part.entity_name) for part in each.entity],
            [(change.key, None if change.remove else change.value) for change in each.ops],
        )
        for each in request.entries
    ]
    refused: Sequence[ApiError | None]
    try:
        refused = await services.run(
            services.quotas.alter(context, alterations, validate_only=request.validate_only)
        )
    except ApiError as error:
        refused = [error] * len(alterations)
    return messages.AlterClientQuotasResponse(
        entries=tuple(
            messages.AlterClientQuotasResult(
                ErrorCode.NONE if error is None else kafka_code(error.code),
                None if error is None else error.message,
                entry.entity,
            )
            for entry, error in zip(request.entries, refused, strict=True)
        )
    )
