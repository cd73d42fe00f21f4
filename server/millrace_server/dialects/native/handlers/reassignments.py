"""AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from millrace_protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingReassignment,
    ReassignmentResult,
)
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.metadata.reassignments import Reassignment
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def alter(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begins, replaces or cancels each reassignment for itself."""
    check_once([(p.topic, p.partition) for p in request.partitions], "partition")
    wanted = [Reassignment(p.topic, p.partition, p.replicas) for p in request.partitions]
    refused = await services.run(
        services.administration.reassign(context, wanted, may_replace=request.may_replace)
    )
    return AlterPartitionReassignmentsResponse(
        tuple(
            ReassignmentResult(each.topic, each.partition, *outcome(error))
            for each, error in zip(wanted, refused, strict=True)
        )
    )


async def list_(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The reassignments in progress."""
    found = await services.run(services.administration.reassignments(context, request.topics))
    return ListPartitionReassignmentsResponse(
        tuple(
            OngoingReassignment(
                each.topic,
                each.number,
                each.replicas,
                each.adding,
                each.removing,
                each.isr,
            )
            for each in found
        )
    )
