"""The progress of a group: its committed offsets and the ends of the partitions.

Owns the requests of `millrace group` to the broker, and the handling of partial responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.admin import Admin
from millrace.groups import GroupDescription
from millrace.records import TopicPartition
from millrace_cli.exits import CommandError
from millrace_cli.offset_reset import PartitionOffsets


class Progress(NamedTuple):
    """A partition with a committed offset or a member; None for unknown values."""

    where: TopicPartition
    committed: int | None
    metadata: str | None
    end: int | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group has not committed."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed


async def progress(admin: Admin, group: GroupDescription) -> list[Progress]:
    """Every partition of the group, in order."""
    owners = {where: member.member_id for member in group.members for where in member.assignment}
    committed = await admin.list_group_offsets(group.group)
    partitions = sorted({*owners, *committed})
    available = await _available(admin, {where.topic for where in partitions})
    ends = await admin.list_offsets({where: "latest" for where in partitions if where in available})
    return [
        Progress(
            where,
            committed[where].offset if where in committed else None,
            committed[where].metadata if where in committed else None,
            ends[where].offset if where in ends else None,
            owners.get(where),
        )
        for where in partitions
    ]


async def partition_offsets(
    admin: Admin,
    group: str,
    chosen: Mapping[str, list[int] | None],
    time_ms: int | None,
) -> dict[TopicPartition, PartitionOffsets]:
    """The offsets of the given partitions, or of all with a committed offset.

    Raises `CommandError` for unknown partitions, and when there is no partition.
    """
    committed = await admin.list_group_offsets(group)
    if chosen:
        partitions = await _chosen(admin, chosen)
    else:
        partitions = sorted(committed)
    if not partitions:
        raise CommandError(f"group {group} has no committed offsets; name topics with --topic")
    starts = await admin.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(partitions, "latest"))
    at_time: dict[TopicPartition, int] = {}
    if time_ms is not None:
        found = await admin.list_offsets(dict.fromkeys(partitions, time_ms))
        at_time = {where: answer.offset for where, answer in found.items() if answer.offset >= 0}
    return {
        where: PartitionOffsets(
            committed[where].offset if where in committed else None,
            starts[where].offset,
            ends[where].offset,
            at_time.get(where),
        )
        for where in partitions
    }


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
