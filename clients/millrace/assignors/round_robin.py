"""`roundrobin`: all partitions of all topics dealt out one by one.

Members sit in a circle and the partitions are dealt in order; a member that does not subscribe to
the topic is passed over. With equal subscriptions no member gets two more than another; with
different ones the deal may be lopsided, for which `sticky` is better. Source: Kafka's
RoundRobinAssignor.
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


class RoundRobinAssignor:
    """Deals partitions out one by one.

    >>> two = {"c0": Subscription(("t0", "t1")), "c1": Subscription(("t0", "t1"))}
    >>> for member, given in RoundRobinAssignor().assign({"t0": 3, "t1": 3}, two).items():
    ...     print(member, *given)
    c0 t0-0 t0-2 t1-1
    c1 t0-1 t1-0 t1-2
    """

    name = "roundrobin"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(
        self, topics: Sequence[str], *, assigned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return None

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Placement:
        placement: Placement = {member_id: [] for member_id in members}
        circle = static_first(members)
        turn = 0
        for topic, subscribers in existing_topics(partition_counts, members).items():
            eligible = frozenset(subscribers)
            for partition in range(partition_counts[topic]):
                while circle[turn % len(circle)] not in eligible:
                    turn += 1
                placement[circle[turn % len(circle)]].append(TopicPartition(topic, partition))
                turn += 1
        return placement
