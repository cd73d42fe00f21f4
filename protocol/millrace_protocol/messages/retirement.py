"""RetireBroker: a broker that leaves the cluster for good."""

from __future__ import annotations

from millrace_protocol.primitives import BOOLEAN, INT16, INT32, NULLABLE_STRING
from millrace_protocol.schema import Message, Request, message, wire


@message
class RetireBrokerRequest(Request):
    """Moves all replicas of a broker to others, and then unregisters it.

    It is sent again until `is_retired` is true, or an error says what is in the way.
    """

    node_id: int = wire(INT32, "id of the broker")


@message
class RetireBrokerResponse(Message):
    """How far the retirement is."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    replicas: int = wire(INT32, "replicas that the broker still has; -1 on error")
    is_retired: bool = wire(BOOLEAN, "whether the broker is unregistered now")
