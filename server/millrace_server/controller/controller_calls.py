"""Requests of this broker to the active controller, wherever that is.

A request that finds no active controller waits for one, until its deadline. It is repeated where it
cannot have taken effect, or where a second effect does no harm; the caller says which.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, cast

from millrace_protocol.errors import ErrorCode
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.controller.controller_requests import ControllerRequests
from millrace_server.environment.seams import Environment
from millrace_server.peers.calls import Channel, PeerCalls, PeerUnreachable, refusal

M = TypeVar("M", bound=Message)
RETRY_MS = 50
FORWARD_WAIT_MS = 10_000
"""As long as a change waits on a broker that may become the active controller."""
_REPEATED = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_API,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""The broker that was asked is not the active controller, or not yet, or no longer, and then it is
not known what became of the request."""
_STOPPING = (ErrorCode.BROKER_STOPPING, ErrorCode.KAFKA_STORAGE_ERROR)
"""Of another broker: it stops, as it does when its disk has failed, and a third one takes over."""


class ControllerCalls:
    """Calls to the active controller."""

    def __init__(
        self,
        env: Environment,
        metadata: ClusterMetadata,
        requests: ControllerRequests,
        peers: PeerCalls,
        *,
        is_alone: bool,
    ) -> None:
        self._env = env
        self._metadata = metadata
        self._active: ActiveController = metadata.active
        self._requests = requests
        self._peers = peers
        self._is_alone = is_alone

    @property
    def is_here(self) -> bool:
        """Whether this broker is the active controller, or the only one that can be."""
        return self._is_alone or self._active.is_active

    async def call(
        self,
        request: Message,
        response: type[M],
        *,
        timeout_ms: int,
        leaderless_ms: int | None = None,
        channel: Channel = Channel.CONTROL,
    ) -> M:
        """The controller's response to a request that may be repeated. Raises `ApiError`.

        `leaderless_ms` is for a caller that can go to another broker: after that time it gets
        NOT_CONTROLLER where this broker knows no leader of the quorum.
        """
        began_ms = self._env.clock.monotonic_ms()
        deadline_ms = began_ms + timeout_ms
        leaderless_until_ms = began_ms + (timeout_ms if leaderless_ms is None else leaderless_ms)
        while True:
            was_here = self.is_here
            try:
                answered: Any = await self._attempt(request, response, deadline_ms, channel)
                if answered.error_code == ErrorCode.NONE:
                    return cast("M", answered)
                raise refusal(answered.error_code, answered.error_message)
            except PeerUnreachable as error:
                missing = ApiError(ErrorCode.NOT_CONTROLLER, f"No active controller: {error}")
                refused = self._peers.refusal or missing
            except ApiError as error:
                refused = error
                if error.code in _STOPPING and not was_here:
                    refused = ApiError(ErrorCode.NOT_CONTROLLER, f"The controller stops: {error}")
                if refused.code not in _REPEATED:
                    raise
            is_known = self.is_here or self._metadata.leader_id is not None
            until_ms = deadline_ms if is_known else leaderless_until_ms
            if self._env.clock.monotonic_ms() + RETRY_MS >= until_ms:
                raise refused
            await asyncio.sleep(RETRY_MS / 1000)

    async def forward(self, request: Message, response: type[M], *, timeout_ms: int) -> M:
        """The response of the active controller to a client's request.

        Raises `ApiError`: NOT_CONTROLLER if there is none for `FORWARD_WAIT_MS`, REQUEST_TIMED_OUT
        if it is not known whether the request has reached one.
        """
        until_ms = self._env.clock.monotonic_ms() + FORWARD_WAIT_MS
        while True:
            try:
                return await self._forward(request, response, timeout_ms)
            except ApiError as error:
                is_over = self._env.clock.monotonic_ms() >= until_ms
                if error.code is not ErrorCode.NOT_CONTROLLER or is_over:
                    raise
            await asyncio.sleep(RETRY_MS / 1000)

    async def _forward(self, request: Message, response: type[M], timeout_ms: int) -> M:
        leader_id = self._metadata.leader_id
        if leader_id is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        try:
            return await self._peers.call(
                leader_id, Channel.CONTROL, request, response, timeout_ms=timeout_ms
            )
        except PeerUnreachable as error:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The active controller, broker {leader_id}, gave no response: {error}. The change "
                "may have been made; look before you try again",
            ) from error

    async def _attempt(
        self, request: Message, response: type[M], deadline_ms: int, channel: Channel
    ) -> Message:
        if self.is_here:
            return await self._requests.handle(request)
        leader_id = self._metadata.leader_id
        if leader_id in (None, self._metadata.key.broker_id):
            # There is none, or it is this broker, which has not begun its epoch yet.
            self._metadata.check_room()
            raise PeerUnreachable("the quorum has no leader")
        timeout_ms = max(1, deadline_ms - self._env.clock.monotonic_ms())
        return await self._peers.call(leader_id, channel, request, response, timeout_ms=timeout_ms)
