"""Hello: who this broker is, and the limits it keeps."""

from __future__ import annotations

from importlib.metadata import version

from millrace_protocol.api import APIS
from millrace_protocol.messages.hello import ApiRange, HelloRequest, HelloResponse
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered
from millrace_server.net.connection import Connection

_APIS = tuple(
    ApiRange(int(api.key), api.min_version, api.max_version)
    for api in sorted(APIS.values(), key=lambda api: api.key)
)
_VERSION = version("millrace")


def handle(broker: Broker, connection: Connection, request: HelloRequest) -> Answered:
    """ResponseQueue, and lifts the limits of a connection that has not said Hello."""
    connection.greeted()
    limits = broker.config.limits
    return HelloResponse(
        software="millrace",
        software_version=_VERSION,
        cluster_id=str(broker.image.cluster_id),
        node_id=broker.config.node_id,
        frame_bytes_max=limits.frame_bytes_max,
        inflight_requests_max=limits.inflight_requests_max,
        apis=_APIS,
    )
