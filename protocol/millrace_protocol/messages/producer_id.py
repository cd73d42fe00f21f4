"""InitProducerId: an identity for idempotent produce."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT64
from millrace_protocol.schema import Message, Request, message, wire


@message
class InitProducerIdRequest(Request):
    """Asks for a new producer id, or for the next epoch of one that the client holds."""

    producer_id: int = wire(INT64, "id to continue with a higher epoch; -1 for a new one")
    producer_epoch: int = wire(INT16, "the epoch the client holds; -1 with a new id")


@message
class InitProducerIdResponse(Message):
    """The identity to write with; sequence numbers start at 0 for each partition."""

    producer_id: int = wire(INT64, "the producer id, never given to another client")
    producer_epoch: int = wire(INT16, "the epoch to write with")
