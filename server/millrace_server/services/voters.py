"""The voters of the metadata quorum: added and removed one at a time (KIP-853).

A change is made on the active controller, and another broker asks it. A voter is a broker and the
directory of its metadata log; a broker whose directory was lost votes again only after its old
identity is removed.
"""

from __future__ import annotations

import uuid

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.logs import get_logger
from millrace_server.metadata.image import ClusterImage
from millrace_server.peers.calls import refusal
from millrace_server.quorum.replica import Event
from millrace_server.raft.voters import ReplicaKey, Voter, VoterSet
from millrace_server.services.forwarded_topics import FORWARD_TIMEOUT_MS
from millrace_server.services.request_context import RequestContext

log = get_logger("millrace.quorum")
NO_DIRECTORY = uuid.UUID(int=0)


class VoterService:
    """Changes the voters. Its methods return when the change is committed; they raise `ApiError`.

    `directory_id` None stands for the directory that is known of the broker.
    """

    def __init__(self, active: ActiveController, controller: ControllerCalls) -> None:
        self._active = active
        self._controller = controller

    async def add(
        self, context: RequestContext, broker_id: int, directory_id: uuid.UUID | None
    ) -> None:
        """Gives a broker a vote that is registered and has caught up with the metadata log."""
        context.check_cluster(Operation.ALTER)
        if not self._controller.is_here:
            wanted = AddRaftVoterRequest(broker_id, directory_id or NO_DIRECTORY)
            await self._forward(wanted, AddRaftVoterResponse)
            return

        def change(image: ClusterImage, voters: VoterSet) -> Event:
            voter = _new_voter(image, voters, broker_id, directory_id)
            return lambda node, now_ms: node.add_voter(voter, now_ms)

        await self._active.change_voters(change)
        log.info("voter added", broker=broker_id)

    async def remove(
        self, context: RequestContext, broker_id: int, directory_id: uuid.UUID | None
    ) -> None:
        """Takes the vote of a broker, which may be gone or be the active controller itself."""
        context.check_cluster(Operation.ALTER)
        if not self._controller.is_here:
            wanted = RemoveRaftVoterRequest(broker_id, directory_id or NO_DIRECTORY)
            await self._forward(wanted, RemoveRaftVoterResponse)
            return

        def change(image: ClusterImage, voters: VoterSet) -> Event:
            key = _known_voter(voters, broker_id, directory_id)
            return lambda node, now_ms: node.remove_voter(key, now_ms)

        await self._active.change_voters(change)
        log.info("voter removed", broker=broker_id)

    async def _forward(
        self,
        request: AddRaftVoterRequest | RemoveRaftVoterRequest,
        response: type[AddRaftVoterResponse | RemoveRaftVoterResponse],
    ) -> None:
        found = await self._controller.forward(request, response, timeout_ms=FORWARD_TIMEOUT_MS)
        if found.error_code != ErrorCode.NONE:
            raise refusal(found.error_code, found.error_message)


def _new_voter(
    image: ClusterImage, voters: VoterSet, broker_id: int, directory_id: uuid.UUID | None
) -> Voter:
    broker = image.brokers.get(broker_id)
    if broker is None:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"There is no broker {broker_id}; the cluster has {known}. Start it first, with the "
            "same `quorum` as the others",
        )
    own_id = broker.directory_ids[0] if directory_id is None else directory_id
    if own_id not in broker.directory_ids:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} is registered with the directory {broker.directory_ids[0]} and "
            f"not {own_id}; leave the directory out, or check on which data it was started",
        )
    known_key = voters.key_of(broker_id)
    if known_key is not None:
        advice = "" if known_key.directory_id == own_id else "; remove that voter first"
        raise ApiError(
            ErrorCode.DUPLICATE_VOTER,
            f"Broker {broker_id} votes already, with the directory {known_key.directory_id}"
            f"{advice}",
        )
    return Voter(ReplicaKey(broker_id, own_id), broker.broker_host, broker.broker_port)


def _known_voter(voters: VoterSet, broker_id: int, directory_id: uuid.UUID | None) -> ReplicaKey:
    key = voters.key_of(broker_id)
    if key is None or directory_id not in (None, key.directory_id):
        what = f"Broker {broker_id}"
        if key is not None:
            what += f" votes with the directory {key.directory_id} and"
        known = ", ".join(str(each.broker_id) for each in voters.keys)
        raise ApiError(
            ErrorCode.VOTER_NOT_FOUND,
            f"{what} is no voter{'' if key is None else f' with {directory_id}'}; the voters are "
            f"brokers {known}",
        )
    if len(voters) == 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} is the last voter, and without one the cluster could change "
            "nothing; add another voter first",
        )
    return key
