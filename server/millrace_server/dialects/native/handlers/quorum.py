"""DescribeQuorum: the leader of the metadata log, and its replicas."""

from __future__ import annotations

from millrace_protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumReplica,
)
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def describe(
    services: Services, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describes the quorum as this broker knows it."""
    found = services.quorum.describe(context)
    replicas = tuple(
        QuorumReplica(
            replica.broker_id,
            replica.directory_id,
            replica.is_voter,
            replica.end_offset,
            replica.fetched_ms,
            replica.caught_up_ms,
        )
        for replica in found.replicas
    )
    return DescribeQuorumResponse(
        0, None, found.leader_id, found.leader_epoch, found.high_watermark, replicas
    )
