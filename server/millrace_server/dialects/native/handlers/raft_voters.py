"""AddRaftVoter, RemoveRaftVoter."""

from __future__ import annotations

import uuid
from collections.abc import Coroutine
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

_NONE = uuid.UUID(int=0)


async def add(
    services: Services, context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    """Adds one voter."""
    change = services.voters.add(context, request.node_id, _given(request.directory_id))
    return AddRaftVoterResponse(*await _outcome(services, change))


async def remove(
    services: Services, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Removes one voter."""
    change = services.voters.remove(context, request.node_id, _given(request.directory_id))
    return RemoveRaftVoterResponse(*await _outcome(services, change))


def _given(directory_id: uuid.UUID) -> uuid.UUID | None:
    return None if directory_id == _NONE else directory_id


async def _outcome(
    services: Services, change: Coroutine[Any, Any, None]
) -> tuple[ErrorCode, str | None]:
    try:
        await services.run(change)
    except ApiError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return outcome(error)
    return outcome(None)
