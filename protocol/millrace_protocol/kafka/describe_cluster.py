"""DescribeCluster (60): the brokers and the controller (KIP-700)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.metadata import UNKNOWN_OPERATIONS
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, INT8, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire

BROKERS = 1


@message
class DescribeClusterRequest(KafkaRequest):
    """Asks for the brokers."""

    flexible_since: ClassVar[int | None] = 0

    include_cluster_authorized_operations: bool = wire(
        BOOLEAN, "tell what the client may do", default=False
    )
    endpoint_type: int = wire(INT8, "1: brokers, 2: controllers", since=1, default=BROKERS)
    include_fenced_brokers: bool = wire(
        BOOLEAN, "also those that are not in service", since=2, default=False
    )


@message
class DescribeClusterBroker(Message):
    """A broker and its address."""

    broker_id: int = wire(INT32, "id of the broker")
    host: str = wire(STRING, "host to connect to")
    port: int = wire(INT32, "port to connect to")
    rack: str | None = wire(NULLABLE_STRING, "rack of the broker", default=None)
    is_fenced: bool = wire(BOOLEAN, "whether it is not in service", since=2, default=False)


@message
class DescribeClusterResponse(Message):
    """The cluster."""

    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    endpoint_type: int = wire(INT8, "as in the request", since=1, default=BROKERS)
    cluster_id: str = wire(STRING, "id of the cluster", default="")
    controller_id: int = wire(INT32, "the active controller; -1: unknown", default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire(
        array_of(DescribeClusterBroker), "the brokers", default=()
    )
    cluster_authorized_operations: int = wire(
        INT32, "what the client may do, as bits", default=UNKNOWN_OPERATIONS
    )
