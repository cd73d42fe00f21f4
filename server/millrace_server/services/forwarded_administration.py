"""Administration on a broker that is not the active controller: it asks the one that is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from millrace_protocol.messages.elections import (
    ElectionPartition,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from millrace_protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from millrace_protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionReassignment,
)
from millrace_protocol.messages.retirement import RetireBrokerRequest, RetireBrokerResponse
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.metadata.partition_changes import Election
from millrace_server.metadata.reassignments import Reassignment
from millrace_server.peers.calls import outcome
from millrace_server.services.forwarded_topics import FORWARD_TIMEOUT_MS
from millrace_server.services.quorum import QuorumState, ReplicaState

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A partition that is being reassigned."""

    topic: str
    number: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Elected:
    """The leader that was elected of a partition, or why there is none."""

    topic: str
    number: int
    leader: int
    error: ApiError | None


class ForwardedAdministration:
    """The methods of `AdministrationService` that clients ask for. They raise `ApiError`."""

    def __init__(self, controller: ControllerCalls) -> None:
        self._controller = controller

    async def reassign(
        self, wanted: Sequence[Reassignment], *, may_replace: bool
    ) -> Sequence[ApiError | None]:
        """See `AdministrationService.reassign`."""
        partitions = (PartitionReassignment(w.topic, w.partition, w.replicas) for w in wanted)
        request = AlterPartitionReassignmentsRequest(tuple(partitions), may_replace)
        response = await self._forward(request, AlterPartitionReassignmentsResponse)
        return [outcome(each.error_code, each.error_message) for each in response.partitions]

    async def reassignments(self, topics: Collection[str] | None) -> list[Ongoing]:
        """See `AdministrationService.reassignments`."""
        request = ListPartitionReassignmentsRequest(None if topics is None else tuple(topics))
        found = await self._forward(request, ListPartitionReassignmentsResponse)
        return [
            Ongoing(
                each.topic,
                each.partition,
                each.replicas,
                each.adding_replicas,
                each.removing_replicas,
                each.isr,
            )
            for each in found.partitions
        ]

    async def elect(
        self, wanted: Sequence[tuple[str, int]] | None, election: Election
    ) -> list[Elected]:
        """See `AdministrationService.elect`."""
        partitions = None if wanted is None else tuple(ElectionPartition(*each) for each in wanted)
        request = ElectLeadersRequest(partitions, election is Election.UNCLEAN)
        response = await self._forward(request, ElectLeadersResponse)
        return [
            Elected(
                each.topic,
                each.partition,
                each.leader_id,
                outcome(each.error_code, each.error_message),
            )
            for each in response.partitions
        ]

    async def retire(self, broker_id: int) -> tuple[int, bool]:
        """The fields of `Retirement`; see `AdministrationService.retire`."""
        found = await self._forward(RetireBrokerRequest(broker_id), RetireBrokerResponse)
        if (error := outcome(found.error_code, found.error_message)) is not None:
            raise error
        return found.replicas, found.is_retired

    async def quorum(self) -> QuorumState:
        """See `AdministrationService.quorum`."""
        found = await self._forward(DescribeQuorumRequest(), DescribeQuorumResponse)
        return QuorumState(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            [
                ReplicaState(
                    each.broker_id,
                    each.directory_id,
                    each.is_voter,
                    each.end_offset,
                    each.fetched_ms,
                    each.caught_up_ms,
                )
                for each in found.replicas
            ],
        )

    async def _forward(self, request: Message, response: type[M]) -> M:
        return await self._controller.forward(request, response, timeout_ms=FORWARD_TIMEOUT_MS)
