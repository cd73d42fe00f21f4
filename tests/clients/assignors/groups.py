"""Generated groups, and their changes from round to round."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st

from millrace.assignors import Assignor, Placement, Subscription
from millrace.records import TopicPartition

UNHURRIED = settings(deadline=None)
"""For generated tests: a busy machine is no reason to fail."""
TOPICS = tuple("abcde")
MEMBERS = tuple(f"m{number}" for number in range(7))


@dataclass(frozen=True)
class Group:
    """Topics with their partition counts, and members by id."""

    counts: dict[str, int]
    members: dict[str, Subscription] = field(default_factory=dict)

    @property
    def placeable(self) -> list[TopicPartition]:
        """The partitions of topics that have a subscriber."""
        wanted = {topic for subscription in self.members.values() for topic in subscription.topics}
        return [
            TopicPartition(topic, number)
            for topic, count in sorted(self.counts.items())
            if topic in wanted
            for number in range(count)
        ]


COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), min_size=1)
# A subscription may name a topic that does not exist.
SUBSCRIBED = st.lists(st.sampled_from((*TOPICS, "gone")), unique=True).map(tuple)
MEMBER_IDS = st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None) -> Group:
    """Members that own nothing yet; with the same topics where `alike`."""
    if alike is None:
        alike = draw(st.booleans())
    ids = draw(MEMBER_IDS)
    shared = draw(SUBSCRIBED)
    return Group(
        draw(COUNTS),
        {member: Subscription(shared if alike else draw(SUBSCRIBED)) for member in ids},
    )


@st.composite
def claiming_groups(draw: st.DrawFn) -> Group:
    """Members that say anything: what others own too, of old generations, of no topic at all."""
    group = draw(groups())
    partitions = st.builds(TopicPartition, st.sampled_from((*TOPICS, "gone")), st.integers(-1, 10))
    return Group(
        group.counts,
        {
            member: dataclasses.replace(
                subscription,
                owned=tuple(draw(st.lists(partitions, max_size=12))),
                generation=draw(st.integers(-1, 3)),
            )
            for member, subscription in group.members.items()
        },
    )


def telling(assignor: Assignor, members: Mapping[str, Subscription]) -> dict[str, Subscription]:
    """The members, with what they own told in the assignor's user data as well."""
    return {
        member: dataclasses.replace(
            subscription,
            user_data=assignor.user_data(
                subscription.topics, assigned=subscription.owned, generation=subscription.generation
            ),
        )
        for member, subscription in members.items()
    }


def after(group: Group, placement: Placement, *, generation: int) -> Group:
    """The group once its members have what they were given."""
    return Group(
        group.counts,
        {
            member: dataclasses.replace(
                subscription, owned=tuple(placement[member]), generation=generation
            )
            for member, subscription in group.members.items()
        },
    )


def sizes(placement: Placement) -> dict[str, int]:
    return {member: len(given) for member, given in placement.items()}


def owners(placement: Placement) -> dict[TopicPartition, str]:
    """The owner of each partition; fails when there are two."""
    twice = [
        p for p, n in Counter(p for given in placement.values() for p in given).items() if n > 1
    ]
    assert twice == []
    return {partition: member for member, given in placement.items() for partition in given}


def helpful_moves(group: Group, placement: Placement) -> list[tuple[TopicPartition, str]]:
    """The moves that would make a placement more even: partition and receiver."""
    size = sizes(placement)
    return [
        (partition, receiver)
        for partition, giver in owners(placement).items()
        for receiver, subscription in group.members.items()
        if partition.topic in subscription.topics and size[giver] > size[receiver] + 1
    ]
