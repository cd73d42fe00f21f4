"""How far a group has come: its committed offsets beside what the partitions hold.

Owns the questions that `millrace group` asks of the broker, and what may be missing in the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.admin import Admin
from millrace.groups import GroupDescription
from millrace.records import TopicPartition
from millrace_cli.exits import Refusal
from millrace_cli.offset_moves import Known


class Progress(NamedTuple):
    """A partition that a group has committed for, or that a member has; None for not known."""

    where: TopicPartition
    committed: int | None
    metadata: str | None
    end: int | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        """How many offsets are left to read."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed


async def progress(admin: Admin, group: GroupDescription) -> list[Progress]:
    """Every partition of the group, in order."""
    owners = {where: member.member_id for member in group.members for where in member.assignment}
    committed = await admin.list_group_offsets(group.group)
    places = sorted({*owners, *committed})
    served = await _served(admin, {where.topic for where in places})
    ends = await admin.list_offsets({where: "latest" for where in places if where in served})
    return [
        Progress(
            where,
            committed[where].offset if where in committed else None,
            committed[where].metadata if where in committed else None,
            ends[where].offset if where in ends else None,
            owners.get(where),
        )
        for where in places
    ]


async def known_partitions(
    admin: Admin,
    group: str,
    chosen: Mapping[str, list[int] | None],
    time_ms: int | None,
) -> dict[TopicPartition, Known]:
    """What is known of the partitions chosen, or of all that the group has committed for.

    Raises `Refusal` for partitions that are not there, and when there is none.
    """
    committed = await admin.list_group_offsets(group)
    if chosen:
        places = await _chosen(admin, chosen)
    else:
        places = sorted(committed)
    if not places:
        raise Refusal(f"group {group} has committed nothing; name what to reset with --topic")
    starts = await admin.list_offsets(dict.fromkeys(places, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(places, "latest"))
    at_time: dict[TopicPartition, int] = {}
    if time_ms is not None:
        found = await admin.list_offsets(dict.fromkeys(places, time_ms))
        at_time = {where: answer.offset for where, answer in found.items() if answer.offset >= 0}
    return {
        where: Known(
            committed[where].offset if where in committed else None,
            starts[where].offset,
            ends[where].offset,
            at_time.get(where),
        )
        for where in places
    }


async def _chosen(admin: Admin, chosen: Mapping[str, list[int] | None]) -> list[TopicPartition]:
    places = []
    for outcome in await admin.describe_topics(chosen):
        count = len(outcome.unwrap().partitions)
        numbers = chosen[outcome.name]
        for number in range(count) if numbers is None else numbers:
            if number >= count:
                raise Refusal(f"{outcome.name} has no partition {number}; it has 0 to {count - 1}")
            places.append(TopicPartition(outcome.name, number))
    return sorted(places)


async def _served(admin: Admin, topics: Iterable[str]) -> set[TopicPartition]:
    """The partitions of those topics that are there and have a leader to ask."""
    found = await admin.describe_topics(sorted(topics))
    return {
        TopicPartition(outcome.name, each.partition)
        for outcome in found
        if outcome.value is not None
        for each in outcome.value.partitions
        if each.leader is not None
    }
