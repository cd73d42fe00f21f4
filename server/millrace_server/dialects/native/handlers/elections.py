"""ElectLeaders."""

from __future__ import annotations

from millrace_protocol.messages.elections import (
    ElectedLeader,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.metadata.partition_changes import Election
from millrace_server.services.forwarded_administration import Elected
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def elect(
    services: Services, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Elects a leader of each partition for itself."""
    wanted = None
    if request.partitions is not None:
        wanted = [(each.topic, each.partition) for each in request.partitions]
        check_once(wanted, "partition")
    election = Election.UNCLEAN if request.is_unclean else Election.PREFERRED
    elected = await services.run(services.administration.elect(context, wanted, election))
    return ElectLeadersResponse(tuple(map(_result, elected)))


def _result(each: Elected) -> ElectedLeader:
    return ElectedLeader(each.topic, each.number, *outcome(each.error), each.leader)
