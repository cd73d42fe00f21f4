"""DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

import ipaddress
from itertools import groupby

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import acls as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.metadata.acls import AclEntry, FilterNumbers
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def describe(
    services: Services,
    context: RequestContext,
    request: messages.DescribeAclsRequest,
    version: int,
) -> messages.DescribeAclsResponse:
    """Answers from the image of this broker, by pattern."""
    try:
        found = services.acls.describe(context, [_numbers(request)])
    except ApiError as error:
        return messages.DescribeAclsResponse(0, kafka_code(error.code), error.message)
    by_pattern = groupby(sorted(found), key=lambda each: each[:3])
    return messages.DescribeAclsResponse(
        resources=tuple(
            messages.DescribeAclsResource(
                kind,
                name,
                pattern,
                tuple(messages.AclDescription(*entry[3:]) for entry in entries),
            )
            for (kind, pattern, name), entries in by_pattern
        )
    )


async def create(
    services: Services, context: RequestContext, request: messages.CreateAclsRequest, version: int
) -> messages.CreateAclsResponse:
    """Adds each entry for itself."""
    entries = [
        (
            each.resource_type,
            each.resource_pattern_type,
            each.resource_name,
            each.principal,
            _host(each.host),
            each.operation,
            each.permission_type,
        )
        for each in request.creations
    ]
    try:
        refused = await services.run(services.acls.create(context, entries))
    except ApiError as error:
        refused = [error] * len(entries)
    return messages.CreateAclsResponse(
        results=tuple(messages.AclCreationResult(*_outcome(each)) for each in refused)
    )


async def delete(
    services: Services, context: RequestContext, request: messages.DeleteAclsRequest, version: int
) -> messages.DeleteAclsResponse:
    """Removes what the filters choose."""
    filters = [*map(_numbers, request.filters)]
    try:
        removed = await services.run(services.acls.delete(context, filters))
    except ApiError as error:
        refused = messages.DeleteAclsFilterResult(*_outcome(error))
        return messages.DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
    return messages.DeleteAclsResponse(
        filter_results=tuple(
            messages.DeleteAclsFilterResult(matching_acls=tuple(map(_removed, found)))
            for found in removed
        )
    )


def _numbers(
    chosen: messages.DescribeAclsRequest | messages.DeleteAclsFilter,
) -> FilterNumbers:
    return (
        chosen.resource_type_filter,
        chosen.pattern_type_filter,
        chosen.resource_name_filter,
        chosen.principal_filter,
        None if chosen.host_filter is None else _host(chosen.host_filter),
        chosen.operation,
        chosen.permission_type,
    )


def _host(text: str) -> str:
    """An address as the broker writes it; Java writes those of IPv6 in full."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def _removed(entry: AclEntry) -> messages.DeleteAclsMatchingAcl:
    kind, pattern, name, principal, host, operation, permission = entry
    return messages.DeleteAclsMatchingAcl(
        ErrorCode.NONE, None, kind, name, pattern, principal, host, operation, permission
    )


def _outcome(error: ApiError | None) -> tuple[int, str | None]:
    return (ErrorCode.NONE, None) if error is None else (kafka_code(error.code), error.message)
