"""Hello: who this broker is, and the limits it keeps."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version

from millrace_protocol.api import APIS, ApiKey, Listener, apis_of
from millrace_protocol.codec import encode
from millrace_protocol.messages.hello import ApiRange, HelloRequest, HelloResponse
from millrace_server.dialects.response_body import BodyParts
from millrace_server.services.cluster import ClusterService
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

_VERSION = version("millrace")


def handle(services: Services, context: RequestContext, request: HelloRequest) -> BodyParts:
    """Answers with the limits; the dialect then lifts the limit on frames before Hello."""
    return hello_body(services.cluster, Listener.CLIENT)


def hello_body(cluster: ClusterService, listener: Listener) -> BodyParts:
    """The response on one of the listeners."""
    return _body(
        listener,
        cluster.cluster_id,
        cluster.node_id,
        cluster.limits.frame_bytes_max,
        cluster.limits.inflight_requests_max,
    )


@lru_cache(maxsize=8)
def _body(
    listener: Listener,
    cluster_id: str,
    node_id: int,
    frame_bytes_max: int,
    inflight_requests_max: int,
) -> BodyParts:
    """The encoded response. One broker always gives the same, so it is encoded once."""
    response = HelloResponse(
        software="millrace",
        software_version=_VERSION,
        cluster_id=cluster_id,
        node_id=node_id,
        frame_bytes_max=frame_bytes_max,
        inflight_requests_max=inflight_requests_max,
        apis=tuple(
            ApiRange(int(api.key), api.min_version, api.max_version)
            for api in sorted(apis_of(listener).values(), key=lambda api: api.key)
        ),
    )
    # The api has one version.
    encoded = encode(response, APIS[ApiKey.HELLO].max_version)
    return BodyParts([encoded], len(encoded))
