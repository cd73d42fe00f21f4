"""Hello: who this broker is, and the limits it keeps."""

from __future__ import annotations

from importlib.metadata import version

from millrace_protocol.api import APIS
from millrace_protocol.messages.hello import ApiRange, HelloRequest, HelloResponse
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

_APIS = tuple(
    ApiRange(int(api.key), api.min_version, api.max_version)
    for api in sorted(APIS.values(), key=lambda api: api.key)
)
_VERSION = version("millrace")


def handle(services: Services, context: RequestContext, request: HelloRequest) -> HelloResponse:
    """Answers with the limits; the dialect then lifts the limit on frames before Hello."""
    limits = services.cluster.limits
    return HelloResponse(
        software="millrace",
        software_version=_VERSION,
        cluster_id=services.cluster.cluster_id,
        node_id=services.cluster.node_id,
        frame_bytes_max=limits.frame_bytes_max,
        inflight_requests_max=limits.inflight_requests_max,
        apis=_APIS,
    )
