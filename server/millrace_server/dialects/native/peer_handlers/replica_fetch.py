"""ReplicaFetch: to the session of the connection."""

from __future__ import annotations

from typing import cast

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import encode_parts
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.replica_fetch import ReplicaFetchRequest, ReplicaFetchResponse
from millrace_server.dialects.response_body import BodyParts
from millrace_server.replicas.wire_messages import decoded_request, encoded_result
from millrace_server.services.replica_fetch import FollowerSession, release
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

VERSION = APIS[ApiKey.REPLICA_FETCH].max_version


async def handle(
    services: Services, context: RequestContext, request: ReplicaFetchRequest
) -> BodyParts:
    """What the session has to tell."""
    session = context.fetch_session
    if session is None:
        session = context.fetch_session = services.replica_fetch.open()
    assert isinstance(session, FollowerSession)
    try:
        told = await services.replica_fetch.fetch(session, decoded_request(request))
    except BaseException:
        # The follower begins anew, with a request that forgets the earlier ones.
        context.fetch_session = None
        services.replica_fetch.end(session)
        raise
    try:
        results = tuple(
            # A slice of a file stands for its bytes, and is a part of the body as it is.
            encoded_result(each.key, each.result, cast("memoryview", each.records or b""))
            for each in told
        )
        response = ReplicaFetchResponse(ErrorCode.NONE, None, results)
        parts = encode_parts(response, VERSION)
    except BaseException:
        release(told)
        raise
    codes = [ErrorCode(each.error_code) for each in results if each.error_code]
    return BodyParts([*parts], sum(map(len, parts)), codes)
