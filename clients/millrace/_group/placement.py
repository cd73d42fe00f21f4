"""The assignment that the leader of a group makes for its members.

Owns the call of an assignor, the check of its result, so that a user's assignor cannot assign a
partition to two members, and the watch over the assigned topics. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from millrace._wording import counted
from millrace.assignors import Assignor, Placement, Subscription, encode_assigned
from millrace.errors import AssignorFailed
from millrace.records import TopicPartition
from millrace_protocol.errors import WireError
from millrace_protocol.messages.group_membership import JoinedMember, MemberAssignment


class Leadership:
    """The members of one generation, and the partition counts of its assignment."""

    def __init__(self, members: Mapping[str, Subscription]) -> None:
        self.members = members
        self.topics = frozenset(topic for member in members.values() for topic in member.topics)
        self._placed: Mapping[str, int] = {}

    @classmethod
    def of(cls, members: Sequence[JoinedMember]) -> Leadership:
        """The leadership over the members in a JoinGroup response.

        Raises `AssignorFailed` for a member whose metadata cannot be decoded.
        """
        found: dict[str, Subscription] = {}
        for member in members:
            try:
                found[member.member_id] = Subscription.decode(
                    member.metadata, group_instance_id=member.instance_id
                )
            except WireError as error:
                raise AssignorFailed(
                    f"the metadata of member {member.member_id!r} are not those of a consumer: "
                    f"{error}; use other names for groups of other kinds"
                ) from error
        return cls(found)

    def watch(self, partition_counts: Mapping[str, int]) -> dict[str, int]:
        """Notes the partition counts of the assignment; returns those of the group's topics."""
        placed = {t: n for t, n in partition_counts.items() if t in self.topics}
        self._placed = placed
        return placed

    def watch_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Notes an assignment of an earlier leader: a leader that came back does not know the
        partition counts of that time.
        """
        self._placed = Counter(where.topic for where in assigned)

    def changes(self, partition_counts: Mapping[str, int]) -> list[str]:
        """The changes since, one sentence for each topic.

        A topic that is not in `partition_counts` has unknown partitions, which is no change; a
        deleted one has 0 partitions.
        """
        return [
            f"topic {topic} has {counted(count, 'partition')}"
            for topic, count in sorted(partition_counts.items())
            if topic in self.topics and count != self._placed.get(topic, 0)
        ]


def place(
    assignor: Assignor, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> tuple[MemberAssignment, ...]:
    """The assignments to bring with SyncGroup, one for each member.

    Raises `AssignorFailed` when the assignor raises, or its result is invalid.
    """
    try:
        placement = assignor.assign(partition_counts, members)
    except Exception as error:
        raise AssignorFailed(f"assignor {assignor.name!r} raised {error!r}") from error
    fault = _fault(placement, partition_counts, members)
    if fault is not None:
        raise AssignorFailed(f"assignor {assignor.name!r} {fault}")
    return tuple(
        MemberAssignment(member_id, encode_assigned(placement.get(member_id, ())))
        for member_id in members
    )


def _fault(
    placement: Placement, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> str | None:
    """The fault of a placement, None for none.

    A partition may be unassigned: in a cooperative group a moving one is, for one round.
    """
    owners: dict[tuple[str, int], str] = {}
    for member_id, partitions in placement.items():
        subscription = members.get(member_id)
        if subscription is None:
            return f"gives partitions to {member_id!r}, which is no member of the group"
        for topic, partition in partitions:
            where = f"{topic}-{partition}"
            if topic not in subscription.topics:
                return f"gives {where} to {member_id!r}, which does not subscribe to {topic!r}"
            if not 0 <= partition < partition_counts.get(topic, 0):
                return f"gives {where} to {member_id!r}, and there is no such partition"
            if (topic, partition) in owners:
                return f"gives {where} to {owners[topic, partition]!r} and to {member_id!r}"
            owners[topic, partition] = member_id
    return None
