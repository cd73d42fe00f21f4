"""`cooperative-sticky`: as `sticky`, in two rounds, so that what stays is read without a pause.

In a cooperative group members keep their partitions while they join. A partition that is to move
may not be given to its next owner before the last one has let go of it. So it is left out of this
round's placement; its owner sees that it is gone, gives it up and joins again; in that
round it has no owner and goes where it should. Owns what is left out.

Source: Kafka's CooperativeStickyAssignor (KIP-429). Kafka leaves out what moves by two rules, one
for equal subscriptions, of the owners, and one for different ones, of the claims; the
second gives a partition at once to a member that lost it long ago while its owner still reads it.
Here the first rule is for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace.assignors._ownership import Claim
from millrace.assignors.assignor import Placement, RebalanceProtocol, Subscription
from millrace.assignors.sticky import place_sticky
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import (
    NO_GENERATION,
    GenerationUserData,
    decode_generation_user_data,
    encode_generation_user_data,
)
from millrace_protocol.errors import WireError


class CooperativeStickyAssignor:
    """Shares as `sticky` does, and withholds what moves until it was given up.

    It is right for eager groups too: there no member owns anything, so nothing is withheld. So a
    group can change to it one member at a time.

    >>> from millrace.records import TopicPartition
    >>> t = [TopicPartition("t", partition) for partition in range(4)]
    >>> assign = CooperativeStickyAssignor().assign
    >>> new = Subscription(("t",))
    >>> first = assign({"t": 4}, {"old": Subscription(("t",), (*t,), 1), "new": new})
    >>> print(*first["old"], first["new"])
    t-0 t-1 []
    >>> second = assign({"t": 4}, {"old": Subscription(("t",), (*t[:2],), 2), "new": new})
    >>> print(*second["old"], *second["new"])
    t-0 t-1 t-2 t-3
    """

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def user_data(
        self, topics: Sequence[str], *, assigned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return encode_generation_user_data(GenerationUserData(generation))

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Placement:
        claims = {
            member_id: Claim(each.owned, generation_of(each)) for member_id, each in members.items()
        }
        placement, ownership = place_sticky(partition_counts, members, claims)
        return {
            member_id: [
                partition
                for partition in given
                if partition not in ownership.claimed
                or ownership.owners.get(partition) == member_id
            ]
            for member_id, given in placement.items()
        }


def generation_of(subscription: Subscription) -> int:
    """When the member was given what it owns: it says so itself, or its user data does."""
    if subscription.generation >= 0 or not subscription.user_data:
        return subscription.generation
    try:
        return decode_generation_user_data(subscription.user_data).generation
    except WireError:
        return NO_GENERATION
