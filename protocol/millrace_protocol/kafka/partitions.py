"""CreatePartitions (37): topics become wider."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class CreatePartitionsAssignment(Message):
    """Where a new partition is to be."""

    broker_ids: tuple[int, ...] = wire(array_of(INT32), "brokers with a replica")


@message
class CreatePartitionsTopic(Message):
    """A topic and how wide it is to be."""

    name: str = wire(STRING, "name of the topic")
    count: int = wire(INT32, "how many partitions it is to have")
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(
        array_of(CreatePartitionsAssignment, nullable=True),
        "where the new ones are to be; null: as the broker decides",
        default=None,
    )


@message
class CreatePartitionsRequest(KafkaRequest):
    """Adds partitions."""

    flexible_since: ClassVar[int | None] = 2

    topics: tuple[CreatePartitionsTopic, ...] = wire(array_of(CreatePartitionsTopic), "the topics")
    timeout_ms: int = wire(INT32, "how long to wait for it", unit="ms", default=30_000)
    validate_only: bool = wire(BOOLEAN, "says only whether it could be", default=False)


@message
class CreatePartitionsTopicResult(Message):
    """A topic that was widened, or not."""

    name: str = wire(STRING, "name of the topic")
    error_code: int = wire(INT16, "error of the topic")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)


@message
class CreatePartitionsResponse(Message):
    """Each topic for itself."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(
        array_of(CreatePartitionsTopicResult), "the topics", default=()
    )
