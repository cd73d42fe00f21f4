"""AddRaftVoter, RemoveRaftVoter: one change of the metadata quorum's voters at a time (KIP-853)."""

from __future__ import annotations

import uuid

from millrace_protocol.primitives import INT16, INT32, NULLABLE_STRING, UUID
from millrace_protocol.schema import Message, Request, message, wire

_DIRECTORY = "directory of its metadata log; zero for that which is known"


@message
class AddRaftVoterRequest(Request):
    """Gives a registered broker a vote in the metadata quorum."""

    node_id: int = wire(INT32, "id of the broker")
    directory_id: uuid.UUID = wire(UUID, _DIRECTORY)


@message
class AddRaftVoterResponse(Message):
    """Says that the change is committed."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")


@message
class RemoveRaftVoterRequest(Request):
    """Takes the vote of a broker, which follows the quorum from then on."""

    node_id: int = wire(INT32, "id of the broker")
    directory_id: uuid.UUID = wire(UUID, _DIRECTORY)


@message
class RemoveRaftVoterResponse(Message):
    """Says that the change is committed."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
