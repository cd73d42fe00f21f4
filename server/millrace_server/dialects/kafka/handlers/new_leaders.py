"""The leader of a partition, for a client that has asked another broker (KIP-951).

The client goes there without asking for Metadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.produce import LeaderIdAndEpoch, NodeEndpoint
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Only a result with one of these errors names the leader."""


def new_leader(services: Services, topic: str, number: int, code: int) -> LeaderIdAndEpoch | None:
    """The leader of a partition whose result is an error; None where there is none to tell."""
    if code not in ERRORS:
        return None
    known = services.topics.leader(topic, number)
    return None if known is None else LeaderIdAndEpoch(*known)


def endpoints(
    services: Services, context: RequestContext, leaders: Iterable[LeaderIdAndEpoch | None]
) -> tuple[NodeEndpoint, ...]:
    """Where the leaders that a response names are, for its listener."""
    ids = {leader.leader_id for leader in leaders if leader is not None}
    if not ids:
        return ()
    brokers = services.cluster.brokers(context.listener)
    return tuple(
        NodeEndpoint(b.node_id, b.host, b.port, b.rack) for b in brokers if b.node_id in ids
    )
