"""DescribeCluster: the brokers and the controller."""

from __future__ import annotations

from millrace_protocol.acls import CLUSTER_NAME, ResourceType
from millrace_protocol.kafka.describe_cluster import (
    BROKERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from millrace_protocol.kafka.metadata import UNKNOWN_OPERATIONS
from millrace_server.dialects.kafka.errors import KafkaError
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CONTROLLERS = 2


def handle(
    services: Services, context: RequestContext, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    """Names the brokers in service; if the client asks, those that are not as well."""
    kind = request.endpoint_type
    if kind != BROKERS:
        is_known = kind == CONTROLLERS
        return DescribeClusterResponse(
            0,
            KafkaError.MISMATCHED_ENDPOINT_TYPE
            if is_known
            else KafkaError.UNSUPPORTED_ENDPOINT_TYPE,
            "This is a listener of brokers; ask for endpoints of type 1",
            endpoint_type=kind,
        )
    cluster = services.cluster
    brokers = [(broker, False) for broker in cluster.brokers(context.listener)]
    if request.include_fenced_brokers:
        brokers += [(broker, True) for broker in cluster.fenced_brokers(context.listener)]
    allowed = UNKNOWN_OPERATIONS
    if request.include_cluster_authorized_operations:
        allowed = context.operations(ResourceType.CLUSTER, CLUSTER_NAME)
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        cluster_authorized_operations=allowed,
        brokers=tuple(
            DescribeClusterBroker(b.node_id, b.host, b.port, b.rack, is_fenced)
            for b, is_fenced in brokers
        ),
    )
