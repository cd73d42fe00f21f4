"""The messages of the quorum on their way: requests of this replica out, those of others in.

The core sends messages and awaits nothing; on the wire each request has a response. A request of
this replica becomes a call, whose response is given to the replica as a message. A call that fails
is a lost message: the core sends it again. A request of another replica waits here for the message
that the core sends back; one that the core does not answer gets this replica's epoch and leader.
"""

from __future__ import annotations

import asyncio

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import quorum as wire
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.peers.calls import Channel, PeerCalls, PeerUnreachable
from millrace_server.quorum.replica import QuorumReplica
from millrace_server.quorum.wire_messages import (
    REQUESTS,
    RESPONSES,
    decoded_request,
    decoded_response,
    encoded_fetch,
    encoded_request,
    encoded_vote,
    silent_response,
)
from millrace_server.raft.messages import FetchRequest, FetchResponse, Message, VoteResponse

CALL_TIMEOUT_MS = 1_500
"""A response that comes later is of no use: the core has sent the request again."""
ANSWER_MS_MAX = 1_000
"""A fetch that was parked by a leader which leads no more is answered then."""
ENDING_MS = 150
"""As long as the end of a process may take."""
CALLS_MAX = 64
"""Requests on their way; more of them are lost."""
Answer = asyncio.Future[wire.QuorumResponse]


class QuorumExchange:
    """Carries messages between this replica and the others, until `close`."""

    def __init__(self, env: Environment, peers: PeerCalls) -> None:
        self._env = env
        self._peers = peers
        self._replica: QuorumReplica | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._fetches: dict[tuple[int, int], Answer] = {}
        """The answers to fetches of others, by broker id and fetch id."""
        self._current: Answer | None = None
        """The answer to the request that the core takes at this moment."""

    def attach(self, replica: QuorumReplica) -> None:
        """Gives messages to this replica from now on."""
        self._replica = replica

    def send(self, message: Message) -> None:
        """Sends a request, or answers one; loses it where that is not possible."""
        if isinstance(message, FetchResponse):
            _settle(
                self._fetches.get((message.destination, message.fetch_id)), encoded_fetch(message)
            )
        elif isinstance(message, VoteResponse):
            _settle(self._current, encoded_vote(message))
        elif isinstance(message, REQUESTS) and len(self._calls) < CALLS_MAX:
            call = self._env.spawn.task(self._call(message), name="quorum call")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def answer(self, request: wire.QuorumRequest) -> wire.QuorumResponse:
        """The response to a request of another replica. Raises `ApiError` before there is one."""
        replica = self._replica
        if replica is None:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "The broker has just started and looks for the voters; try again in a moment",
            )
        message = decoded_request(request, replica.key)
        answer: Answer = asyncio.get_running_loop().create_future()
        fetch = (request.source_id, message.fetch_id) if isinstance(message, FetchRequest) else None
        if fetch is not None:
            self._fetches[fetch] = answer

        def begin() -> None:
            self._current = answer

        def end() -> None:
            self._current = None
            if fetch is None:
                _settle(answer, self._silent(request, replica))

        replica.receive(message, begin, end)
        try:
            async with asyncio.timeout(ANSWER_MS_MAX / 1000):
                return await answer
        except TimeoutError:
            return self._silent(request, replica)
        finally:
            if fetch is not None and self._fetches.get(fetch) is answer:
                del self._fetches[fetch]

    async def close(self) -> None:
        """Ends the calls on their way."""
        self._replica = None
        for call in [*self._calls]:
            call.cancel()
            await asyncio.wait([call])

    async def _call(self, message: Message) -> None:
        request = encoded_request(message)
        is_fetch = isinstance(message, FetchRequest)
        try:
            response = await self._peers.call(
                message.destination,
                Channel.QUORUM_FETCH if is_fetch else Channel.QUORUM,
                request,
                RESPONSES[type(request)],
                timeout_ms=CALL_TIMEOUT_MS,
            )
        except PeerUnreachable:
            if is_fetch and await self._is_process_gone(message.destination):
                self._note_gone(message.destination)
        except ApiError:
            return
        else:
            if self._replica is not None:
                self._replica.receive(decoded_response(message, response))

    async def _is_process_gone(self, broker_id: int) -> bool:
        """Whether the process of a broker has ended; one that is ending may yet take a connection
        and reset it."""
        if await self._peers.is_process_gone(broker_id):
            return True
        await asyncio.sleep(ENDING_MS / 1000)
        return await self._peers.is_process_gone(broker_id)

    def _note_gone(self, broker_id: int) -> None:
        if self._replica is not None:
            self._replica.on_process_gone(broker_id)

    @staticmethod
    def _silent(request: wire.QuorumRequest, replica: QuorumReplica) -> wire.QuorumResponse:
        return silent_response(
            request,
            directory_id=replica.key.directory_id,
            epoch=replica.epoch,
            leader_id=replica.leader_id,
        )


def _settle(answer: Answer | None, response: wire.QuorumResponse) -> None:
    if answer is not None and not answer.done():
        answer.set_result(response)
