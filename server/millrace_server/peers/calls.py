"""How broker code calls another broker: the interface, and what can go wrong.

`peers.connections` implements it on real connections. A call is not repeated here: the caller knows
what a second attempt means.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol, TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError

M = TypeVar("M", bound=Message)


class Channel(Enum):
    """A connection to each broker for each kind of call: responses come in the order of requests,
    and a fetch may wait long for its response."""

    QUORUM = "quorum"
    QUORUM_FETCH = "quorum fetch"
    CONTROL = "control"
    HEARTBEAT = "heartbeat"
    REPLICA_FETCH = "replica fetch"


class PeerUnreachable(Exception):
    """The broker gave no response: it is not known whether the request has reached it."""


class PeerUntrusted(PeerUnreachable):
    """TLS with the broker has failed, or seems to have: it ended the connection too early."""


class PeerNotListening(PeerUnreachable):
    """The system at the broker's address refuses connections: no process listens there."""


def refusal(error_code: int, message: str | None) -> ApiError:
    """The error that another broker's response says."""
    try:
        return ApiError(ErrorCode(error_code), message)
    except ValueError:
        text = f"error {error_code}, which this broker does not know: {message}"
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text)


def outcome(error_code: int, message: str | None) -> ApiError | None:
    """The same for one of several results; None for a success."""
    return None if error_code == ErrorCode.NONE else refusal(error_code, message)


class NoPeers:
    """The calls of a broker that is a cluster of its own."""

    refusal: ApiError | None = None
    """See `PeerCalls.refusal`."""

    async def call(
        self,
        broker_id: int,
        channel: Channel,
        request: Message,
        response: type[M],
        *,
        timeout_ms: int,
    ) -> M:
        """See `PeerCalls.call`."""
        raise PeerUnreachable(f"this broker knows no broker {broker_id}")

    async def is_process_gone(self, broker_id: int) -> bool:
        """See `PeerCalls.is_process_gone`."""
        return False


class PeerCalls(Protocol):
    """Calls to other brokers, by their ids."""

    @property
    def refusal(self) -> ApiError | None:
        """Why another broker would not talk to this one when it was last asked, None if it did."""
        ...

    async def call(
        self,
        broker_id: int,
        channel: Channel,
        request: Message,
        response: type[M],
        *,
        timeout_ms: int,
    ) -> M:
        """Sends a request and returns its response.

        Raises `PeerUnreachable`, and `ApiError` where the broker refuses the request.
        """
        ...

    async def is_process_gone(self, broker_id: int) -> bool:
        """Whether the address of a broker refuses connections. Waits as long as a connect may take.

        False says nothing: the broker may be alive, or cut off.
        """
        ...
