"""FindCoordinator (10), versions 0 to 6: the broker that coordinates a group."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT8, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class FindCoordinatorRequest(KafkaRequest):
    """Asks for one, or since version 4 for several (KIP-699)."""

    flexible_since: ClassVar[int | None] = 3

    key: str = wire(STRING, "name of the group", until=3, default="")
    key_type: int = wire(INT8, "0: a group, 1: transactions, 2: a share group", since=1, default=0)
    coordinator_keys: tuple[str, ...] = wire(
        array_of(STRING), "names of the groups", since=4, default=()
    )


@message
class Coordinator(Message):
    """The coordinator of one key."""

    key: str = wire(STRING, "name of the group", since=4, default="")
    node_id: int = wire(INT32, "id of the broker", since=4, default=-1)
    host: str = wire(STRING, "host to connect to", since=4, default="")
    port: int = wire(INT32, "port to connect to", since=4, default=-1)
    error_code: int = wire(INT16, "error of this key", since=4, default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", since=4, default=None)


@message
class FindCoordinatorResponse(Message):
    """The coordinators."""

    flexible_since: ClassVar[int | None] = 3

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=1, default=0)
    error_code: int = wire(INT16, "error of the request", until=3, default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", since=1, until=3, default=None)
    node_id: int = wire(INT32, "id of the broker", until=3, default=-1)
    host: str = wire(STRING, "host to connect to", until=3, default="")
    port: int = wire(INT32, "port to connect to", until=3, default=-1)
    coordinators: tuple[Coordinator, ...] = wire(
        array_of(Coordinator), "one for each key", since=4, default=()
    )
