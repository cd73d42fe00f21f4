"""The broker that coordinates one group: finds it, finds it again, and calls it.

Owns its node id and the questions about the whole group. Joins and syncs wait on the broker and go
over a connection of their own, because answers come in order: a heartbeat behind a join would come
too late.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from millrace._broker_error import broker_error
from millrace._cluster.cluster import LANE_CALLS, Cluster
from millrace.assignors import decode_assigned
from millrace.errors import (
    BrokerStopping,
    ConnectionFailed,
    ConnectionLost,
    CoordinatorUnavailable,
    MillraceError,
    ProtocolViolation,
    RequestTimedOut,
)
from millrace.records import TopicPartition
from millrace_protocol.errors import WireError
from millrace_protocol.messages.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millrace_protocol.schema import Message

M = TypeVar("M", bound=Message)
LANE_JOIN = "join"
"""Joins and syncs: the broker answers when the other members have come."""
UNREACHABLE = (
    BrokerStopping,
    ConnectionFailed,
    ConnectionLost,
    CoordinatorUnavailable,
    RequestTimedOut,
)
"""The coordinator could not be asked; after these errors it is looked for anew."""


class Coordinator:
    """The coordinator of one group, as far as known."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self._cluster = cluster
        self._node_id: int | None = None
        self._asked = -1
        """The broker that was asked last for the coordinator."""

    async def call(
        self, request: Message, answer: type[M], *, timeout_ms: int, lane: str = LANE_CALLS
    ) -> M:
        """Tries once. Raises what the coordinator says, or what kept it from saying anything."""
        node_id = await self._find(timeout_ms) if self._node_id is None else self._node_id
        try:
            connection = await self._cluster.connection(node_id, lane=lane)
            return await connection.call(request, answer, timeout_ms=timeout_ms)
        except UNREACHABLE:
            if self._node_id == node_id:
                self._node_id = None
            raise

    async def call_until(self, request: Message, answer: type[M], *, timeout_ms: int) -> M:
        """Tries until it is answered or its time is over, as `Cluster.call` does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        attempt = 0
        while True:
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            try:
                return await self.call(request, answer, timeout_ms=left_ms)
            except MillraceError as error:
                delay_ms = self._cluster.backoff_ms(attempt)
                if not error.retriable or loop.time() + delay_ms / 1000 >= deadline:
                    raise
            await asyncio.sleep(delay_ms / 1000)
            attempt += 1

    async def all_assigned(self, timeout_ms: int) -> set[TopicPartition]:
        """All partitions that the members of the group have."""
        answer = await self.call(
            DescribeGroupsRequest((self.group,)),
            DescribeGroupsResponse,
            timeout_ms=timeout_ms,
        )
        try:
            return {
                where
                for group in answer.groups
                for member in group.members
                for where in decode_assigned(member.assignment)
            }
        except WireError as error:
            raise ProtocolViolation(
                f"an assignment of the group cannot be decoded: {error}"
            ) from error

    async def _find(self, timeout_ms: int) -> int:
        """The node id of the coordinator, with its address in the cluster's cache."""
        # A broker that is cut off from the others names a coordinator of earlier times.
        connection = await self._cluster.any_connection(avoid=self._asked)
        self._asked = connection.node_id
        answer = await connection.call(
            FindCoordinatorRequest((self.group,)),
            FindCoordinatorResponse,
            timeout_ms=min(timeout_ms, self._cluster.config.request_timeout_ms),
        )
        (found,) = answer.coordinators
        if found.error_code:
            raise broker_error(found.error_code, found.error_message, about=self.group)
        if found.node_id not in self._cluster.metadata.brokers:
            await self._cluster.refresh(())
        self._node_id = found.node_id
        return found.node_id
