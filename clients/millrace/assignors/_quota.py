"""Sticky placement where every member subscribes to the same topics.

With `n` partitions and `m` members each gets `n // m`, and `n % m` members get one more.
Owns which member keeps what under those quotas, and which gets the rest. No placement with these
sizes moves fewer partitions: a member loses only what is above its quota.

Source: the constrained case of Kafka's AbstractStickyAssignor, without racks. Where Kafka takes
members in the order of a hash map, here they are taken by id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from millrace.assignors.assignor import Placement
from millrace.records import TopicPartition


def place_by_quota(
    partition_counts: Mapping[str, int],
    members: list[str],
    owners: Mapping[TopicPartition, str],
) -> Placement:
    """Places all partitions of `partition_counts` on `members`, which are sorted and not empty.

    `owners` maps partitions to members; owners that are no members, and partitions of other topics,
    are not in it.
    """
    kept = _owned(members, owners)
    low, over_count = divmod(sum(partition_counts.values()), len(members))
    over_left = over_count
    under: deque[str] = deque()
    at_low: deque[str] = deque()
    for member_id in members:
        mine = kept[member_id]
        if len(mine) < low:
            under.append(member_id)
        elif len(mine) > low and over_left:
            del mine[low + 1 :]
            over_left -= 1
        else:
            del mine[low:]
            at_low.append(member_id)
    taken = {partition for partitions in kept.values() for partition in partitions}
    for topic in sorted(partition_counts):
        for number in range(partition_counts[topic]):
            partition = TopicPartition(topic, number)
            if partition in taken:
                continue
            # Those below the quota take turns; only then does anybody get one more than that.
            if under:
                member_id = under.popleft()
                kept[member_id].append(partition)
                (under if len(kept[member_id]) < low else at_low).append(member_id)
            else:
                kept[at_low.popleft()].append(partition)
    return kept


def _owned(members: list[str], owners: Mapping[TopicPartition, str]) -> Placement:
    """What each member holds, in the order of Kafka's assignor: what stands first is kept."""
    owned: Placement = {member_id: [] for member_id in members}
    for partition in sorted(owners, key=lambda owner: (owner.partition, owner.topic)):
        owned[owners[partition]].append(partition)
    return owned
