"""`range`: neighbouring partitions of each topic to neighbouring members.

Topic by topic the partitions are laid out in order, the members beside them, and cut into equal
runs; the first members get one more where it does not come out even. Topics with as many
partitions and the same members are cut alike, so a member gets the same partition numbers of all
of them: what joins by key need. Source: Kafka's RangeAssignor, without racks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace.assignors.assignor import (
    Placement,
    RebalanceProtocol,
    Subscription,
    existing_topics,
    static_first,
)
from millrace.records import TopicPartition


class RangeAssignor:
    """Cuts every topic into runs, one for each of its members.

    >>> two = {"c0": Subscription(("t0", "t1")), "c1": Subscription(("t0", "t1"))}
    >>> for member, given in RangeAssignor().assign({"t0": 3, "t1": 3}, two).items():
    ...     print(member, *given)
    c0 t0-0 t0-1 t1-0 t1-1
    c1 t0-2 t1-2
    """

    name = "range"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(
        self, topics: Sequence[str], *, assigned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return None

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Placement:
        placement: Placement = {member_id: [] for member_id in members}
        rank = {member_id: place for place, member_id in enumerate(static_first(members))}
        for topic, subscribers in existing_topics(partition_counts, members).items():
            each, extra = divmod(partition_counts[topic], len(subscribers))
            start = 0
            for place, member_id in enumerate(sorted(subscribers, key=rank.__getitem__)):
                end = start + each + (place < extra)
                placement[member_id] += (TopicPartition(topic, p) for p in range(start, end))
                start = end
        return placement
