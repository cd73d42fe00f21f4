"""BrokerHello: a broker names itself to another one, and makes sure which one it has reached."""

from __future__ import annotations

import uuid

from millrace_protocol.primitives import (
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID,
)
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class BrokerHelloRequest(Request):
    """Names the sender and its cluster."""

    broker_id: int = wire(INT32, "the sender's id")
    directory_id: uuid.UUID = wire(UUID, "identity of the directory with its metadata log")
    cluster_id: str | None = wire(
        NULLABLE_STRING, "the sender's cluster; null while it belongs to none"
    )
    destination_id: int = wire(INT32, "id of the broker that the sender means to reach")


@message
class QuorumVoter(Message):
    """One voter of the metadata quorum."""

    broker_id: int = wire(INT32, "the voter's id")
    directory_id: uuid.UUID = wire(UUID, "identity of the directory with its metadata log")
    host: str = wire(STRING, "host name or address of its broker listener")
    port: int = wire(UINT16, "TCP port of its broker listener")


@message
class BrokerHelloResponse(Message):
    """Names the receiver, its cluster and the voters that it knows."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    broker_id: int = wire(INT32, "the receiver's id")
    directory_id: uuid.UUID = wire(UUID, "identity of the directory with its metadata log")
    cluster_id: str | None = wire(
        NULLABLE_STRING, "the receiver's cluster; null while it belongs to none"
    )
    voters: tuple[QuorumVoter, ...] | None = wire(
        array_of(QuorumVoter, nullable=True),
        "the voters of the metadata quorum; null while the receiver does not know them",
    )
