"""Metadata and assignments of consumers, which the coordinator passes on without reading them.

Owns the bytes of `metadata` in JoinGroup and of `assignment` in SyncGroup for groups of the type
"consumer", and the user data in them of the two sticky assignors. They are Kafka's to the byte, so
that clients of both kinds can share a group. The assignment itself is computed elsewhere.

    subscription                                  assignment
    +---------+--------+-----------+-----         +---------+---------+-----------+
    | version | topics | user data | ...          | version | per     | user data |
    | int16   | array  | bytes     |              | int16   | topic   | bytes     |
    +---------+--------+-----------+-----         +---------+---------+-----------+

A version adds fields behind those of the version before it and changes none. So bytes of a newer
version than `VERSION` are read as this one, and what follows is ignored; bytes of a known version
end where their fields end.

Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json and
StickyAssignorUserData.json; KIP-54, KIP-429, KIP-792, KIP-881.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from millrace_protocol.body_errors import short_value, trailing_bytes
from millrace_protocol.codec import Buffer, decode, decode_leading, encode
from millrace_protocol.errors import WireError
from millrace_protocol.primitives import INT16, INT32, NULLABLE_BYTES, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire

PROTOCOL_TYPE = "consumer"
"""The type of a group whose members speak this."""
VERSION = 3
"""The newest version known here, and the one to write."""
NO_GENERATION = -1
"""The generation of a member without an assignment, or that does not send one."""

_VERSION_SIZE = 2


@message
class Body(Message):
    """Base of the messages of this module, with limits for the partitions of one group."""

    elements_max = 200_000


B = TypeVar("B", bound=Body)


@message
class TopicPartitions(Body):
    """Partitions of one topic."""

    topic: str = wire(STRING, "topic name")
    partitions: tuple[int, ...] = wire(array_of(INT32), "partition numbers")


@message
class ConsumerSubscription(Body):
    """The topics that a member subscribes to, and the partitions that it owns as it joins."""

    topics: tuple[str, ...] = wire(array_of(STRING), "topics to be assigned from")
    user_data: bytes | None = wire(NULLABLE_BYTES, "from the member's assignor to the leader's")
    owned: tuple[TopicPartitions, ...] = wire(
        array_of(TopicPartitions), "partitions that the member has not revoked", since=1, default=()
    )
    generation: int = wire(
        INT32, "generation of `owned`; -1 for none", since=2, default=NO_GENERATION
    )
    rack: str | None = wire(
        NULLABLE_STRING, "rack of the member; null for unknown", since=3, default=None
    )


@message
class ConsumerAssignment(Body):
    """The assignment of one member."""

    partitions: tuple[TopicPartitions, ...] = wire(array_of(TopicPartitions), "all its partitions")
    user_data: bytes | None = wire(NULLABLE_BYTES, "from the leader's assignor to the member's")


@message
class StickyUserData(Body):
    """User data of the assignor "sticky": the member's last assignment, even if revoked since.

    It has no version in front; version 0 ends before `generation`.
    """

    assigned: tuple[TopicPartitions, ...] = wire(array_of(TopicPartitions), "the assignment")
    generation: int = wire(
        INT32, "generation of the assignment; -1 for unknown", since=1, default=NO_GENERATION
    )


@message
class GenerationUserData(Body):
    """User data of the assignor "cooperative-sticky": the age of `owned` before version 2."""

    generation: int = wire(INT32, "generation of the owned partitions; -1 for none")


def encode_subscription(subscription: ConsumerSubscription, version: int = VERSION) -> bytes:
    """The bytes of a subscription; fields of later versions are left out.

    Raises `ValueError` for a value its type cannot carry, and for a version not known here.
    """
    return _encode(subscription, version)


def decode_subscription(data: Buffer) -> ConsumerSubscription:
    """The subscription in `data`; fields of later versions than its own have their defaults.

    Raises `WireError` when it is short, broken or too long.
    """
    return _decode(ConsumerSubscription, data)


def encode_assignment(assignment: ConsumerAssignment, version: int = VERSION) -> bytes:
    """The bytes of an assignment. Raises as `encode_subscription` does."""
    return _encode(assignment, version)


def decode_assignment(data: Buffer) -> ConsumerAssignment:
    """The assignment in `data`. Raises `WireError` when it is short, broken or too long."""
    return _decode(ConsumerAssignment, data)


def encode_sticky_user_data(user_data: StickyUserData) -> bytes:
    """The bytes of version 1. Raises `ValueError` for a value its type cannot carry."""
    return encode(user_data, 1)


def decode_sticky_user_data(data: Buffer) -> StickyUserData:
    """User data of version 1, or else of version 0: the bytes do not name their version.

    Raises `WireError` when they are neither.
    """
    try:
        return decode(StickyUserData, data, 1)
    except WireError:
        return decode(StickyUserData, data, 0)


def encode_generation_user_data(user_data: GenerationUserData) -> bytes:
    """Four bytes. Raises `ValueError` for a generation that is no int32."""
    return encode(user_data, 0)


def decode_generation_user_data(data: Buffer) -> GenerationUserData:
    """The generation in `data`. Raises `WireError` when it is not four bytes."""
    return decode(GenerationUserData, data, 0)


def by_topic(partitions: Iterable[tuple[str, int]]) -> tuple[TopicPartitions, ...]:
    """Partitions put together under their topics, both in order.

    >>> by_topic([("b", 0), ("a", 2), ("a", 1)])
    (TopicPartitions(topic='a', partitions=(1, 2)), TopicPartitions(topic='b', partitions=(0,)))
    """
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in found.items())


def _encode(body: Body, version: int) -> bytes:
    if not 0 <= version <= VERSION:
        raise ValueError(f"version {version} of {type(body).__name__}; 0 to {VERSION} are known")
    return version.to_bytes(_VERSION_SIZE, "big") + encode(body, version)


def _decode(cls: type[B], data: Buffer) -> B:
    if len(data) < _VERSION_SIZE:
        raise short_value(
            "version", INT16.spec_name, size=_VERSION_SIZE, left=len(data), position=0
        )
    version = int.from_bytes(data[:_VERSION_SIZE], "big", signed=True)
    if version < 0:
        raise WireError(f"{cls.__name__} has version {version}", field="version", position=0)
    body, end = decode_leading(cls, data, min(version, VERSION), position=_VERSION_SIZE)
    if version <= VERSION and end != len(data):
        raise trailing_bytes(cls.__name__, len(data) - end, end)
    return body
