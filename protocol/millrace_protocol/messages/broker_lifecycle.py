"""What a broker asks of the active controller for itself: to register, stay and leave.

BrokerRegistration, BrokerHeartbeat, AssignReplicas and AllocateProducerIds.
"""

from __future__ import annotations

import uuid

from millrace_protocol.primitives import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID,
)
from millrace_protocol.schema import BrokerRequest, Message, Request, array_of, message, wire

_BROKER_ID = "the sender's id"
_BROKER_EPOCH = "the epoch of its registration"


@message
class ClientListener(Message):
    """Where clients find the sender."""

    name: str = wire(STRING, "name of the listener")
    host: str = wire(STRING, "host name or address that clients are told")
    port: int = wire(UINT16, "TCP port")
    has_tls: bool = wire(BOOLEAN, "whether it speaks TLS")


@message
class BrokerRegistrationRequest(Request):
    """Makes the sender a broker of the cluster; a new process registers anew."""

    broker_id: int = wire(INT32, _BROKER_ID)
    incarnation_id: uuid.UUID = wire(UUID, "identity of the process, new at each start")
    directory_ids: tuple[uuid.UUID, ...] = wire(
        array_of(UUID), "identities of its data directories"
    )
    listeners: tuple[ClientListener, ...] = wire(
        array_of(ClientListener), "its listeners for clients, at least one"
    )
    broker_host: str = wire(STRING, "host name or address of its listener for brokers")
    broker_port: int = wire(UINT16, "TCP port of its listener for brokers")
    rack: str | None = wire(NULLABLE_STRING, "where it stands; null if that was not configured")
    previous_broker_epoch: int = wire(
        INT64, "the epoch in which it was shut down cleanly; -1 if it was not"
    )


@message
class BrokerRegistrationResponse(Message):
    """The registration. The broker is fenced until its heartbeats say that it has caught up."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    broker_epoch: int = wire(INT64, "the epoch of the registration; -1 on error")


@message
class BrokerHeartbeatRequest(Request):
    """The sender is alive. Without heartbeats the controller fences it."""

    broker_id: int = wire(INT32, _BROKER_ID)
    broker_epoch: int = wire(INT64, _BROKER_EPOCH)
    metadata_offset: int = wire(INT64, "end of what it has applied of the metadata log")
    wants_shutdown: bool = wire(BOOLEAN, "the controller is to move its leaders away")


@message
class BrokerHeartbeatResponse(Message):
    """The controller's view of the sender."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    is_caught_up: bool = wire(BOOLEAN, "whether it has applied its own registration")
    is_fenced: bool = wire(BOOLEAN, "whether it leads nothing and clients do not see it")
    should_shut_down: bool = wire(BOOLEAN, "whether its leaders are moved and it may stop")


@message
class AssignedReplica(Message):
    """A replica that the sender holds."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number")


@message
class AssignReplicasRequest(BrokerRequest):
    """The sender has created these replicas in one of its directories (KIP-858)."""

    broker_id: int = wire(INT32, _BROKER_ID)
    broker_epoch: int = wire(INT64, _BROKER_EPOCH)
    directory_id: uuid.UUID = wire(UUID, "the directory that holds them")
    replicas: tuple[AssignedReplica, ...] = wire(array_of(AssignedReplica), "the replicas")


@message
class AssignReplicasResponse(Message):
    """All of them are in the metadata, or none is."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")


@message
class AllocateProducerIdsRequest(Request):
    """Asks for producer ids that no other broker gives out."""

    broker_id: int = wire(INT32, _BROKER_ID)
    broker_epoch: int = wire(INT64, _BROKER_EPOCH)
    at_least: int = wire(INT64, "no id of the block is smaller; 0 for any")


@message
class AllocateProducerIdsResponse(Message):
    """A block of producer ids, for the sender alone."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    first_producer_id: int = wire(INT64, "the first id; -1 on error")
    count: int = wire(INT32, "how many ids follow each other from there; 0 on error")
