"""InitProducerId: identities for idempotent producers."""

from __future__ import annotations

from millrace_protocol.messages.producer_id import InitProducerIdRequest, InitProducerIdResponse
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered
from millrace_server.net.connection import Connection


def handle(broker: Broker, connection: Connection, request: InitProducerIdRequest) -> Answered:
    """Gives a new id, or the next epoch of one the client holds."""

    async def give() -> InitProducerIdResponse:
        producer_id, epoch = await broker.producer_ids.give(
            request.producer_id, request.producer_epoch
        )
        return InitProducerIdResponse(producer_id, epoch)

    return broker.env.spawn.task(give(), name="init producer id")
