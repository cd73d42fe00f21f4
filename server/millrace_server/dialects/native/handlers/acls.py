"""CreateAcls, DescribeAcls, DeleteAcls."""

from __future__ import annotations

from dataclasses import astuple

from millrace_protocol.messages import acls as messages
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def create(
    services: Services, context: RequestContext, request: messages.CreateAclsRequest
) -> messages.CreateAclsResponse:
    """Adds each entry for itself."""
    entries = [astuple(each) for each in request.acls]
    refused = await services.run(services.acls.create(context, entries))
    return messages.CreateAclsResponse(
        tuple(messages.AclResult(*outcome(error)) for error in refused)
    )


def describe(
    services: Services, context: RequestContext, request: messages.DescribeAclsRequest
) -> messages.DescribeAclsResponse:
    """Answers from the image of this broker."""
    found = services.acls.describe(context, [astuple(each) for each in request.filters])
    return messages.DescribeAclsResponse(tuple(messages.Acl(*entry) for entry in found))


async def delete(
    services: Services, context: RequestContext, request: messages.DeleteAclsRequest
) -> messages.DeleteAclsResponse:
    """Removes what the filters choose."""
    filters = [astuple(each) for each in request.filters]
    removed = await services.run(services.acls.delete(context, filters))
    return messages.DeleteAclsResponse(
        tuple(
            messages.DeletedAcls(tuple(messages.Acl(*entry) for entry in found))
            for found in removed
        )
    )
