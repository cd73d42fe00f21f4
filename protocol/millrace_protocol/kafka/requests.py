"""What all requests of Kafka's protocol have in common."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.schema import Request, message


@message
class KafkaRequest(Request):
    """Base of every request of a Kafka client, which does not divide one that is long.

    The bounds admit every partition of a broker with `partitions_max` at its default, each in a
    topic of its own.
    """

    array_max: ClassVar[int] = 5_000
    elements_max: ClassVar[int] = 12_000
