"""Hello: the first exchange of a connection; names both sides, versions and limits."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class HelloRequest(Request):
    """Names the client, and asks for the broker's apis and limits."""

    software: str = wire(STRING, "name of the client library")
    software_version: str = wire(STRING, "version of the client library")


@message
class ApiRange(Message):
    """The versions of one api, both ends included."""

    api: int = wire(INT16, "the api's key")
    min_version: int = wire(INT16, "lowest version")
    max_version: int = wire(INT16, "highest version")


@message
class HelloResponse(Message):
    """The broker, its apis and its limits."""

    software: str = wire(STRING, "name of the broker's software")
    software_version: str = wire(STRING, "version of the broker's software")
    cluster_id: str = wire(STRING, "identity of the cluster, fixed when its data was first written")
    node_id: int = wire(INT32, "this broker's id in the metadata")
    frame_bytes_max: int = wire(INT32, "largest length field the broker accepts", unit="bytes")
    inflight_requests_max: int = wire(
        INT32, "requests of one connection the broker works on before it stops reading"
    )
    apis: tuple[ApiRange, ...] = wire(array_of(ApiRange), "every api of the broker")
