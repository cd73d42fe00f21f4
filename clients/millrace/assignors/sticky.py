"""`sticky`: even shares, and of those the ones that move least.

A member tells the leader's assignor what it was last given, in user data, because in an eager
group it has given all of that up before it joins. Owns that and the choice between the two ways
of placing: by quota where all subscriptions are equal, by search where they differ.
Source: Kafka's StickyAssignor and AbstractStickyAssignor (KIP-54), without racks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace.assignors._balance import Balance
from millrace.assignors._ownership import Claim, Ownership, judge
from millrace.assignors._quota import place_by_quota
from millrace.assignors.assignor import (
    Placement,
    RebalanceProtocol,
    Subscription,
    existing_topics,
    partitions_of,
)
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import (
    NO_GENERATION,
    StickyUserData,
    by_topic,
    decode_sticky_user_data,
    encode_sticky_user_data,
)
from millrace_protocol.errors import WireError


class StickyAssignor:
    """Shares evenly and lets partitions stay where they were.

    With equal subscriptions no member has two more than another. With different ones none has two
    more than another that could take one of them.

    >>> from millrace.records import TopicPartition
    >>> sticky, counts = StickyAssignor(), {"t": 4}
    >>> def joining(*assigned: int) -> Subscription:
    ...     given = [TopicPartition("t", partition) for partition in assigned]
    ...     data = sticky.user_data(("t",), assigned=given, generation=1)
    ...     return Subscription(("t",), user_data=data)
    >>> for member, given in sticky.assign(counts, {
    ...     "old": joining(0, 1, 2, 3), "new": joining(),
    ... }).items():
    ...     print(member, *given)
    old t-0 t-1
    new t-2 t-3
    """

    name = "sticky"
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def user_data(
        self, topics: Sequence[str], *, assigned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        if not assigned and generation == NO_GENERATION:
            return None
        return encode_sticky_user_data(StickyUserData(by_topic(assigned), generation))

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Placement:
        claims = {member_id: claim_of_user_data(each) for member_id, each in members.items()}
        placement, _ = place_sticky(partition_counts, members, claims)
        return placement


def claim_of_user_data(subscription: Subscription) -> Claim:
    """What a member of an eager group was last given; nothing if it cannot be read."""
    if not subscription.user_data:
        return Claim((), NO_GENERATION)
    try:
        told = decode_sticky_user_data(subscription.user_data)
    except WireError:
        # Whatever its assignor is, its partitions can be placed; they just do not stick.
        return Claim((), NO_GENERATION)
    return Claim(partitions_of(told.assigned), told.generation)


def place_sticky(
    partition_counts: Mapping[str, int],
    members: Mapping[str, Subscription],
    claims: Mapping[str, Claim],
) -> tuple[Placement, Ownership]:
    """The placement, and the verdict on `claims` that it keeps to."""
    subscribers = existing_topics(partition_counts, members)
    counts = {topic: partition_counts[topic] for topic in subscribers}
    ownership = judge(counts, claims)
    placement: Placement = {member_id: [] for member_id in members}
    # A member without topics, or with other ones, is no reason to search if nothing is to place.
    if not counts:
        return placement, ownership
    wanted = {member_id: frozenset(each.topics) for member_id, each in members.items()}
    staying = {
        partition: member_id
        for partition, member_id in ownership.owners.items()
        if partition.topic in wanted[member_id]
    }
    if len(set(wanted.values())) == 1:
        by_member = place_by_quota(counts, sorted(members), staying)
        placement.update((member_id, sorted(given)) for member_id, given in by_member.items())
        return placement, ownership
    balance = Balance(counts, subscribers, staying)
    placed = balance.place_rest()
    if len(staying) == len(ownership.owners):
        balance.even_out(ownership.formers, placed)
    balance.even_out(ownership.formers)
    for partition, member_id in sorted(balance.owners.items()):
        placement[member_id].append(partition)
    return placement, ownership
