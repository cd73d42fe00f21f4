"""Hello and BrokerHello on the listener for brokers."""

from __future__ import annotations

from millrace_protocol.api import Listener
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_hello import (
    BrokerHelloRequest,
    BrokerHelloResponse,
    QuorumVoter,
)
from millrace_protocol.messages.hello import HelloRequest
from millrace_server.dialects.native.handlers.hello import hello_body
from millrace_server.dialects.response_body import BodyParts
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def handle(services: Services, context: RequestContext, request: HelloRequest) -> BodyParts:
    """Answers with the apis and limits of this listener."""
    return hello_body(services.cluster, Listener.BROKER)


def introduce(
    services: Services, context: RequestContext, request: BrokerHelloRequest
) -> BrokerHelloResponse:
    """Takes down which broker is at the other end, if it is one of this cluster."""
    found = services.quorum.introduce(request.cluster_id, request.destination_id)
    context.broker_id = request.broker_id
    voters = None
    if found.voters is not None:
        voters = tuple(QuorumVoter(*v.key, v.host, v.port) for v in found.voters.voters)
    cluster_id = None if found.cluster_id is None else str(found.cluster_id)
    return BrokerHelloResponse(ErrorCode.NONE, None, *found.key, cluster_id, voters)
