"""The progress of a group: its committed offsets and the ends of the partitions.

Owns the requests of `millrace group` to the broker, and the handling of partial responses.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from millrace.admin import Admin
from millrace.groups import GroupDescription
from millrace.records import TopicPartition
from millrace_cli.exits import CommandError

GROUPS_PER_ROUND = 50
"""Groups that are asked for at once."""


class Progress(NamedTuple):
    """A partition with a committed offset or a member; None for unknown values."""

    where: TopicPartition
    committed: int | None
    metadata: str | None
    end: int | None
    member_id: str | None
    member: str | None
    """The member as people know it: `member_names`."""

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group has not committed."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed


async def progress(admin: Admin, group: GroupDescription) -> list[Progress]:
    """Every partition of the group, in order."""
    return (await _progress(admin, [group]))[0]


async def progress_of_groups(admin: Admin, names: Sequence[str]) -> dict[str, list[Progress]]:
    """Every partition of each group; of a group that was deleted since, none."""
    found: dict[str, list[Progress]] = {name: [] for name in names}
    for start in range(0, len(names), GROUPS_PER_ROUND):
        outcomes = await admin.describe_groups(names[start : start + GROUPS_PER_ROUND])
        described = [outcome.unwrap() for outcome in outcomes.values()]
        for group, partitions in zip(described, await _progress(admin, described), strict=True):
            found[group.group] = partitions
    return found


def member_names(group: GroupDescription) -> dict[str, str]:
    """A short name for each member id: the instance id, or the client id if no other member has it.

    Every other member keeps its id.
    """
    clients = Counter(each.client_id for each in group.members)
    return {
        each.member_id: each.instance_id
        or (each.client_id if clients[each.client_id] == 1 else "")
        or each.member_id
        for each in group.members
    }


def total_lag(partitions: Iterable[Progress]) -> int | None:
    """The sum of the known lags; None if there is none."""
    known = [each.lag for each in partitions if each.lag is not None]
    return sum(known) if known else None


async def committed_of(
    admin: Admin, group: str, chosen: Mapping[str, list[int] | None]
) -> dict[TopicPartition, int]:
    """The committed offsets of a group in topics, or in some of their partitions, in order.

    Raises `CommandError` where it has committed nothing.
    """
    committed = await admin.list_group_offsets(group)
    found: dict[TopicPartition, int] = {}
    for topic, numbers in chosen.items():
        known = sorted(where for where in committed if where.topic == topic)
        wanted = known if numbers is None else [TopicPartition(topic, each) for each in numbers]
        for where in wanted:
            if where not in committed:
                raise CommandError(f"group {group} has no committed offset for {where}")
            found[where] = committed[where].offset
        if not wanted:
            raise CommandError(f"group {group} has no committed offset in topic {topic}")
    return dict(sorted(found.items()))


async def reset_partitions(
    admin: Admin, group: str, chosen: Mapping[str, list[int] | None]
) -> list[TopicPartition]:
    """The partitions that are chosen, or all with a committed offset, in order.

    Raises `CommandError` for unknown partitions, and when there is no partition.
    """
    partitions = await _chosen(admin, chosen) if chosen else await admin.list_group_offsets(group)
    if not partitions:
        raise CommandError(f"group {group} has no committed offsets; name topics with --topic")
    return sorted(partitions)


async def _progress(admin: Admin, groups: Sequence[GroupDescription]) -> list[list[Progress]]:
    """The partitions of each group, by few requests for all of them."""
    committed = await asyncio.gather(*(admin.list_group_offsets(each.group) for each in groups))
    owners = [
        {where: member.member_id for member in group.members for where in member.assignment}
        for group in groups
    ]
    partitions = [sorted({*owned, *known}) for owned, known in zip(owners, committed, strict=True)]
    wanted = {where for each in partitions for where in each}
    available = await _available(admin, {where.topic for where in wanted})
    ends = await admin.list_offsets(dict.fromkeys(sorted(wanted & available), "latest"))
    return [
        [
            Progress(
                where,
                known[where].offset if where in known else None,
                known[where].metadata if where in known else None,
                ends[where].offset if where in ends else None,
                owned.get(where),
                names.get(owned.get(where, "")),
            )
            for where in some
        ]
        for some, known, owned, names in zip(
            partitions, committed, owners, map(member_names, groups), strict=True
        )
    ]


async def _chosen(admin: Admin, chosen: Mapping[str, list[int] | None]) -> list[TopicPartition]:
    partitions = []
    for outcome in await admin.describe_topics(chosen):
        count = len(outcome.unwrap().partitions)
        numbers = chosen[outcome.name]
        for number in range(count) if numbers is None else numbers:
            if number >= count:
                raise CommandError(
                    f"{outcome.name} has no partition {number}; it has 0 to {count - 1}"
                )
            partitions.append(TopicPartition(outcome.name, number))
    return sorted(partitions)


async def _available(admin: Admin, topics: Iterable[str]) -> set[TopicPartition]:
    """The partitions of those topics that exist and have a leader."""
    found = await admin.describe_topics(sorted(topics))
    return {
        TopicPartition(outcome.name, each.partition)
        for outcome in found
        if outcome.value is not None
        for each in outcome.value.partitions
        if each.leader is not None
    }
