"""InitProducerId (22), versions 0 to 5: an identity for an idempotent producer."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING
from millrace_protocol.schema import Message, message, wire


@message
class InitProducerIdRequest(KafkaRequest):
    """Asks for an id, or for the next epoch of one (KIP-360)."""

    flexible_since: ClassVar[int | None] = 2

    transactional_id: str | None = wire(NULLABLE_STRING, "id of the transactions; null: none")
    transaction_timeout_ms: int = wire(INT32, "how long a transaction may be open")
    producer_id: int = wire(INT64, "the id so far; -1: none", since=3, default=-1)
    producer_epoch: int = wire(INT16, "its epoch; -1: none", since=3, default=-1)


@message
class InitProducerIdResponse(Message):
    """The identity."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up")
    error_code: int = wire(INT16, "error of the request")
    producer_id: int = wire(INT64, "the id; -1: none", default=-1)
    producer_epoch: int = wire(INT16, "its epoch", default=0)
