"""The interface of assignors, of the built-in ones and of a user's own.

Owns the words of the assignment: subscriptions in, a placement out. Refuses to know the group's
protocol and time: an assignor is a function of what the members say, and the leader of a group is
the only one that calls it. Source: KIP-429 (rebalance protocols), KIP-345 (static members).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import (
    NO_GENERATION,
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    by_topic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

Placement: TypeAlias = dict[str, list[TopicPartition]]
"""What each member is given, by member id; each list in order, and empty for an idle member."""


class RebalanceProtocol(Enum):
    """The handling of a member's partitions in a rebalance.

    `EAGER`: it gives up all of them before it joins. `COOPERATIVE`: it keeps them, gives up those
    that the new assignment does not give it, and joins again if there were any.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member says as it joins.

    `owned` is what it has not given up: nothing in an eager group. `generation` is when it was
    given that, -1 for never. `group_instance_id` is None but for a static member.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack: str | None = None
    group_instance_id: str | None = None

    def encode(self) -> bytes:
        """The member's `metadata` in JoinGroup, which the instance id is no part of.

        Topics and partitions go in order. Raises `ValueError` for a value that does not fit.
        """
        return encode_subscription(
            ConsumerSubscription(
                topics=tuple(sorted(self.topics)),
                user_data=self.user_data,
                owned=by_topic(self.owned),
                generation=self.generation,
                rack=self.rack,
            )
        )

    @classmethod
    def decode(cls, metadata: bytes, *, group_instance_id: str | None = None) -> Subscription:
        """The subscription of a member as the leader is told of it.

        Raises `WireError` for bytes that are none.
        """
        told = decode_subscription(metadata)
        return cls(
            topics=told.topics,
            owned=partitions_of(told.owned),
            generation=told.generation,
            user_data=told.user_data,
            rack=told.rack,
            group_instance_id=group_instance_id,
        )


class Assignor(Protocol):
    """Gives the partitions of topics to the members that subscribe to them.

    One object serves one consumer for its life. All of a group's members need an assignor of the
    same name.
    """

    @property
    def name(self) -> str:
        """The name on the wire, the same in all members."""
        ...

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """The rebalance protocols this assignor's placements are right for."""
        ...

    def user_data(
        self, topics: Sequence[str], *, assigned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        """What the member tells the leader's assignor beside its subscription; None for nothing.

        `assigned` and `generation` are the last assignment and when it was made, even if it was
        revoked since; empty and -1 before the first.
        """
        ...

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Placement:
        """Places the partitions: for every member a list, of topics it subscribes to.

        `partition_counts` has the topics that exist. A topic that it lacks or that no member
        subscribes to is left out, and no partition is in two lists.
        """
        ...


def partitions_of(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    """The partitions of some topics as they stand on the wire, one by one."""
    return tuple(
        TopicPartition(owned.topic, partition) for owned in topics for partition in owned.partitions
    )


def encode_assigned(partitions: Iterable[TopicPartition]) -> bytes:
    """One member's `assignment` in SyncGroup. Raises `ValueError` for a value that cannot be."""
    return encode_assignment(ConsumerAssignment(by_topic(partitions), None))


def decode_assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """What a member was given; the coordinator's empty bytes for "nothing" are nothing.

    Raises `WireError` for bytes that are no assignment.
    """
    return partitions_of(decode_assignment(assignment).partitions) if assignment else ()


def existing_topics(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, list[str]]:
    """The topics that exist and have a subscriber, in order, each with its member ids."""
    subscribers: dict[str, list[str]] = {}
    for member_id in sorted(members):
        for topic in dict.fromkeys(members[member_id].topics):
            if partition_counts.get(topic, 0) > 0:
                subscribers.setdefault(topic, []).append(member_id)
    return dict(sorted(subscribers.items()))


def static_first(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids in the order of KIP-345: static ones by instance id, then the others by id.

    A static member comes back under another member id. Its instance id keeps its place.
    """

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].group_instance_id
        return (instance_id is None, instance_id or "", member_id)

    return sorted(members, key=place)
